"""Random points. Trial n is drawn from the seed and n alone, so it does not depend on which other trials are open."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence

from evalfleet.tune.space import Point, Space, identity
from evalfleet.tune.strategies.base import Proposal
from evalfleet.tune.trial import Trial

_DRAWS = 200  # until a point is new; then the rest of a space that ends is listed


class Random:
    """Implements `Strategy`."""

    def __init__(self, space: Space, seed: int) -> None:
        self._space = space
        self._seed = seed

    def propose(self, trials: Sequence[Trial], count: int) -> Proposal:
        tried = {trial.point for trial in trials}
        number = max((trial.number for trial in trials), default=0)
        points: list[Point] = []
        while len(points) < count:
            point = drawn(self._space, tried, random.Random(f"{self._seed}:{number + len(points) + 1}"))
            if point is None:
                return Proposal(points=tuple(points), exhausted=True)
            tried.add(identity(point))
            points.append(point)
        return Proposal(points=tuple(points))


def drawn(space: Space, tried: Collection[str], rng: random.Random) -> Point | None:
    """An allowed point that was not tried yet; None if none is left or none was found."""
    for _ in range(_DRAWS):
        point = space.draw(rng)
        if identity(point) not in tried and space.allows(point):
            return point
    left = [point for point in space.every() or () if identity(point) not in tried]
    return rng.choice(left) if left else None
