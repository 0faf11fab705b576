"""The interface of strategies: they propose the points to try next.

Contract of every strategy (`tests.contract.strategies` tries it):

- It keeps nothing between calls: all it knows are the trials that it is given, finished and open, with their numbers. So a
  controller that is killed takes nothing with it, and any number of trials may be open.
- The same seed and the same trials give the same proposals.
- It proposes only allowed points of the space, none that a trial has or had, and none twice.
- Fewer proposals than were asked for, with `exhausted`: there are no more points. Without: ask again when a trial has ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from evalfleet.errors import InputError
from evalfleet.tune.objective import Objective
from evalfleet.tune.space import Point, Space
from evalfleet.tune.trial import Trial
from evalfleet.validation import quoted, suggestion

STRATEGIES = ("grid", "random", "bayesian", "halving")


class Proposal(Struct, frozen=True, kw_only=True):
    points: tuple[Point, ...]
    exhausted: bool = False


class Strategy(Protocol):
    def propose(self, trials: Sequence[Trial], count: int) -> Proposal:
        """At most `count` points to try next.

        Args:
            trials: all that the study has, by number.
        """
        ...


def strategy_of(name: str, space: Space, objective: Objective, seed: int) -> Strategy:
    """Raises InputError for an unknown name, and if a package that the strategy needs is not installed."""
    match name:
        case "grid":
            from evalfleet.tune.strategies.grid import Grid

            return Grid(space, seed)
        case "random" | "halving":  # who goes up is `tune.halving`'s
            from evalfleet.tune.strategies.random import Random

            return Random(space, seed)
        case "bayesian":
            from evalfleet.tune.strategies.bayesian import Bayesian

            return Bayesian(space, objective, seed)
        case _:
            raise InputError(f"study.strategy: {quoted(name)} is not a strategy{suggestion(name, STRATEGIES)}")
