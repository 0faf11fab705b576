"""Every point of a grid; and where not all can be tried, those that show every value of every parameter first.

The next point is the one whose values were tried least so far. So the first N of a grid are spread over it, never one corner,
however many N are, and whoever adds trials later goes on in the same way.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence

from evalfleet.tune.expression import Value
from evalfleet.tune.space import Point, Space, identity
from evalfleet.tune.strategy import Proposal
from evalfleet.tune.trial import Trial


class Grid:
    """Implements `Strategy`."""

    def __init__(self, space: Space, seed: int) -> None:
        self._points = space.grid()
        random.Random(seed).shuffle(self._points)  # among equals no corner goes first

    def propose(self, trials: Sequence[Trial], count: int) -> Proposal:
        tried = {trial.point for trial in trials}
        used: Counter[tuple[str, str]] = Counter()
        for trial in trials:
            used.update(_values(trial.parameters))
        left = [point for point in self._points if identity(point) not in tried]
        chosen: list[Point] = []
        while left and len(chosen) < count:
            best = min(range(len(left)), key=lambda place: _worn(left[place], used))
            point = left.pop(best)
            used.update(_values(point))
            chosen.append(point)
        return Proposal(points=tuple(chosen), exhausted=not left)


def _values(point: Mapping[str, Value]) -> list[tuple[str, str]]:
    return [(name, repr(value)) for name, value in point.items()]


def _worn(point: Point, used: Counter[tuple[str, str]]) -> float:
    """How often its values were tried, many times counting more; a mean, because points may differ in their parameters."""
    values = _values(point)
    return sum(used[value] ** 2 for value in values) / max(len(values), 1)
