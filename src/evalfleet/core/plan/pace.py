"""A factor that everything in one run shares: one run meets a slow cloud, the next one a fast one. Pure."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from statistics import fmean

from msgspec import Struct

_WEIGHT = 2  # runs of history that count as much as the spread that is assumed
_MOST = 4.0  # spreads; farther out lies nothing that a plan could tell


class Pace(Struct, frozen=True, kw_only=True):
    """How far a run may be off the usual one. A spread that few runs told is uncertain itself: hence Student's t."""

    spread: float = 0.0  # of the logarithm
    freedom: float = math.inf  # degrees

    def draw(self, rng: random.Random) -> float:
        """The logarithm of the factor of one run."""
        if not self.spread:
            return 0.0
        off = rng.gauss(0.0, 1.0)
        if self.freedom < math.inf:
            off /= math.sqrt(rng.gammavariate(self.freedom / 2, 2 / self.freedom))
        return self.spread * max(-_MOST, min(_MOST, off))


def pace_of(runs: Sequence[float], usual: float) -> Pace:
    """What is learned from the mean logarithms of earlier runs.

    Args:
        usual: the spread that is assumed where no run tells.
    """
    if not runs:
        return Pace(spread=usual)
    mean = fmean(runs)
    freedom = _WEIGHT + len(runs) - 1
    variance = (_WEIGHT * usual**2 + sum((one - mean) ** 2 for one in runs)) / freedom
    return Pace(spread=math.sqrt(variance * (1 + 1 / len(runs))), freedom=freedom)
