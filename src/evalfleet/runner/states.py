"""Transitions of small state machines, only along the edges of their tables."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Tuple

    Edges = Mapping[Tuple[str, str], Tuple[str, ...]]  # (before, after) -> the verbs that move it


def moved(edges: Edges, before: str, after: str) -> str:
    """Return `after`. Staying in a state is not a transition. Raises ValueError if there is no such edge."""
    if before != after and (before, after) not in edges:
        raise ValueError("there is no transition from %s to %s" % (before, after))
    return after
