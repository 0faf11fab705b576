"""What every strategy must do. Subclass `StrategyContract` in a test module and give the fixture `make`::

class TestMine(StrategyContract):
    @pytest.fixture
    def make(self) -> Make:  # (space, objective, seed) -> Strategy
        return lambda space, objective, seed: Mine(space, seed)
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from evalfleet.tune.objective import Objective, objective_of
from evalfleet.tune.space import Point, Space, identity, space_of
from evalfleet.tune.strategies.base import Strategy
from evalfleet.tune.trial import Progress, Trial

Make = Callable[[Space, Objective, int], Strategy]

OBJECTIVE = objective_of({"minimize": "loss"}, ["ms <= 90"])
SIX = space_of({"a": [1, 2, 3], "b": ["x", "y"]})
MIXED = space_of(
    {
        "tp": [1, 2, 4],
        "batch": {"type": "integer", "low": 1, "high": 64, "log": True},
        "share": {"type": "continuous", "low": 0.5, "high": 0.9},
        "spec": [True, False],
        "draft": {"type": "integer", "low": 1, "high": 8, "when": "spec"},
        "forbid": ["tp == 4 and batch > 32"],
    }
)


def asked(strategy: Strategy, trials: Sequence[Trial], count: int) -> tuple[list[Trial], bool]:
    """The trials and the proposed ones, as open trials."""
    proposal = strategy.propose(trials, count)
    assert len(proposal.points) <= count
    new = [Trial(number=len(trials) + place, parameters=p) for place, p in enumerate(proposal.points, start=1)]
    return [*trials, *new], proposal.exhausted


def ended(trial: Trial, rng: random.Random) -> Trial:
    """A random end of a trial."""
    if rng.random() < 0.2:
        return replace(trial, progress=rng.choice([Progress.FAILED, Progress.VOID]))
    return replace(trial, progress=Progress.MEASURED, metrics={"loss": rng.random(), "ms": rng.uniform(50, 100)})


def points(trials: Sequence[Trial]) -> list[Point]:
    return [dict(trial.parameters) for trial in trials]


class StrategyContract:
    """The promises of `tune.strategy`, one test each."""

    def test_a_space_that_ends_is_tried_whole_and_no_point_twice(self, make: Make) -> None:
        strategy, trials = make(SIX, OBJECTIVE, 1), list[Trial]()
        exhausted = False
        while not exhausted and len(trials) < 10:
            trials, exhausted = asked(strategy, trials, 4)
        assert exhausted
        assert len(trials) == len({identity(trial.parameters) for trial in trials}) == 6

    def test_any_number_may_be_open_while_others_end_in_any_order(self, make: Make) -> None:
        strategy, rng, trials = make(MIXED, OBJECTIVE, 3), random.Random(5), list[Trial]()
        for _ in range(12):
            trials, _ = asked(strategy, trials, rng.randint(1, 4))
            for place in rng.sample(range(len(trials)), len(trials) // 2):
                if trials[place].progress is Progress.OPEN:
                    trials[place] = ended(trials[place], rng)
        assert len({identity(trial.parameters) for trial in trials}) == len(trials) >= 12

    def test_only_points_of_the_space_come(self, make: Make) -> None:
        trials, _ = asked(make(MIXED, OBJECTIVE, 2), [], 25)
        assert len(trials) == 25
        for point in points(trials):
            assert MIXED.allows(point)
            assert MIXED.of(point) == point
            assert point["tp"] in (1, 2, 4)
            assert isinstance(point["batch"], int)
            assert 1 <= point["batch"] <= 64
            assert isinstance(point["share"], float)
            assert 0.5 <= point["share"] <= 0.9
            assert ("draft" in point) is point["spec"]

    def test_the_same_seed_and_trials_give_the_same_and_another_seed_does_not(self, make: Make) -> None:
        def sequence(seed: int) -> list[Point]:
            rng, trials = random.Random(9), list[Trial]()
            for _ in range(12):
                trials, _ = asked(make(MIXED, OBJECTIVE, seed), trials, 1)  # always another instance
                trials[-1] = ended(trials[-1], rng)
            return points(trials)

        assert sequence(4) == sequence(4)
        assert sequence(4) != sequence(5)

    def test_it_keeps_nothing_between_calls(self, make: Make) -> None:
        kept, rng = make(MIXED, OBJECTIVE, 6), random.Random(2)
        trials: list[Trial] = []
        for _ in range(6):
            again, _ = asked(make(MIXED, OBJECTIVE, 6), trials, 2)
            trials, _ = asked(kept, trials, 2)
            assert points(trials) == points(again)
            trials[-1] = ended(trials[-1], rng)

    def test_where_everything_is_forbidden_it_ends(self, make: Make) -> None:
        nothing = space_of({"a": [1, 2], "forbid": ["a >= 1"]})
        proposal = make(nothing, OBJECTIVE, 1).propose([], 3)
        assert proposal.points == ()
        assert proposal.exhausted
