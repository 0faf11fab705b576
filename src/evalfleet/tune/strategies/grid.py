"""Every point of a grid; and where not all can be tried, those that show every value of every parameter first.

The next point is the one whose values were tried least so far. So the first N points are spread over the grid, never in one corner,
however many N are, and whoever adds trials later goes on in the same way.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from evalfleet.tune.expression import Value
from evalfleet.tune.space import Point, Space, identity
from evalfleet.tune.strategies.base import Proposal
from evalfleet.tune.trial import Trial


class _Place(NamedTuple):
    point: Point
    identity: str
    values: list[tuple[str, str]]


class Grid:
    """Implements `Strategy`."""

    def __init__(self, space: Space, seed: int) -> None:
        points = space.grid()
        random.Random(seed).shuffle(points)  # among equals no corner goes first
        self._places = [_Place(point, identity(point), _values(point)) for point in points]
        self._known = {place.identity: place.values for place in self._places}

    def propose(self, trials: Sequence[Trial], count: int) -> Proposal:
        tried = {trial.point for trial in trials}
        used: Counter[tuple[str, str]] = Counter()
        for trial in trials:
            used.update(self._known.get(trial.point) or _values(trial.parameters))
        left = [place for place in self._places if place.identity not in tried]
        chosen: list[Point] = []
        while left and len(chosen) < count:
            squares = {value: times**2 for value, times in used.items()}
            best = min(range(len(left)), key=lambda at: _worn(left[at].values, squares))
            place = left.pop(best)
            used.update(place.values)
            chosen.append(place.point)
        return Proposal(points=tuple(chosen), exhausted=not left)


def _values(point: Mapping[str, Value]) -> list[tuple[str, str]]:
    return [(name, repr(value)) for name, value in point.items()]


def _worn(values: list[tuple[str, str]], squares: Mapping[tuple[str, str], int]) -> float:
    """How often its values were tried, many times counting more; a mean, because points may differ in their parameters."""
    return sum([squares.get(value, 0) for value in values]) / (len(values) or 1)
