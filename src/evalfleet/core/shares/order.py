"""Which waiting run gets a controller next, where not all can have one.

By the same measure as for slots: the user who has the fewest driven runs for their weight comes first; of one user's runs the one with
the highest priority; of those the oldest.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from evalfleet.core.shares.rule import Weights


class WaitingRun(Struct, frozen=True, kw_only=True):
    """A run that is queued and that no controller drives."""

    id: str
    user: str
    priority: int
    created_at: float


def in_order(waiting: Sequence[WaitingRun], driven: Iterable[str], weights: Weights) -> list[WaitingRun]:
    """The waiting runs, first come those that should be driven first.

    Args:
        driven: the user of each run that has a controller.
    """
    counts: dict[str, int] = {}
    for user in driven:
        counts[user] = counts.get(user, 0) + 1
    lines: dict[str, list[WaitingRun]] = {}
    for run in sorted(waiting, key=lambda run: (-run.priority, run.created_at, run.id)):
        lines.setdefault(run.user, []).append(run)
    found: list[WaitingRun] = []
    while lines:
        user = min(
            lines, key=lambda name: ((counts.get(name, 0) + 1) / weights.of_user(name), lines[name][0].created_at)
        )
        found.append(lines[user].pop(0))
        counts[user] = counts.get(user, 0) + 1
        if not lines[user]:
            del lines[user]
    return found
