"""Moves of small state machines, along the edges of their tables only."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Tuple

    Edges = Mapping[Tuple[str, str], Tuple[str, ...]]  # (before, after) -> the verbs that move it


def moved(edges: Edges, before: str, after: str) -> str:
    """Return `after`. Staying is no move. Raises ValueError where there is no such edge."""
    if before != after and (before, after) not in edges:
        raise ValueError("there is no way from %s to %s" % (before, after))
    return after
