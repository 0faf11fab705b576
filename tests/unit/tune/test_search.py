"""Whether the search is any good, and the defects that a search of this kind is known to have.

The numbers in names and comments are those of the list of weak points that this was built against: 11 to 18 are a search's,
19 and 21 to 25 a worker's. Each test fails where its defect is put back.
"""

from __future__ import annotations

import json
import math
import random
import statistics
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from msgspec.structs import replace
from tests.contract.strategies import MIXED, OBJECTIVE, asked, ended, points

from evalfleet.tune.objective import objective_of
from evalfleet.tune.ranking import best, contenders
from evalfleet.tune.space import Space, identity, space_of
from evalfleet.tune.strategies.base import strategy_of
from evalfleet.tune.trial import Progress, Trial

pytestmark = pytest.mark.filterwarnings("ignore::Warning:optuna")
LOSS = objective_of({"minimize": "loss"}, [])
BRANIN = space_of(
    {"x": {"type": "continuous", "low": -5.0, "high": 10.0}, "y": {"type": "continuous", "low": 0.0, "high": 15.0}}
)
CUBE = space_of({name: {"type": "continuous", "low": 0.0, "high": 1.0} for name in "abc"})


def branin(point: Mapping[str, Any]) -> float:
    """Branin's function; its least value is 0.398."""
    x, y = point["x"], point["y"]
    return (
        (y - 5.1 / (4 * math.pi**2) * x * x + 5 / math.pi * x - 6) ** 2
        + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x)
        + 10
    )


def hartmann(point: Mapping[str, Any]) -> float:
    """Hartmann's function of three variables; its least value is -3.863."""
    widths = ((3, 10, 30), (0.1, 10, 35), (3, 10, 30), (0.1, 10, 35))
    centres = (
        (0.3689, 0.1170, 0.2673), (0.4699, 0.4387, 0.7470), (0.1091, 0.8732, 0.5547), (0.0381, 0.5743, 0.8828))  # fmt: skip
    at = [point[name] for name in "abc"]
    total = 0.0
    for weight, width, centre in zip((1, 1.2, 3, 3.2), widths, centres, strict=True):
        total += weight * math.exp(-sum(w * (x - c) ** 2 for w, x, c in zip(width, at, centre, strict=True)))
    return -total


def searched(name: str, space: Space, loss: Callable[[Mapping[str, Any]], float], seed: int, count: int) -> float:
    """The best of `count` trials, four open at any time, which end in any order."""
    strategy, rng, trials = strategy_of(name, space, LOSS, seed), random.Random(seed), list[Trial]()
    while len(trials) < count or any(trial.progress is Progress.OPEN for trial in trials):
        open_ = [place for place, trial in enumerate(trials) if trial.progress is Progress.OPEN]
        if len(open_) < min(4, count - len(trials) + len(open_)):
            trials, _ = asked(strategy, trials, min(4 - len(open_), count - len(trials)))
            continue
        place = rng.choice(open_)
        metrics = {"loss": loss(trials[place].parameters)}
        trials[place] = replace(trials[place], progress=Progress.MEASURED, metrics=metrics)
    return min(trial.metrics["loss"] for trial in trials)


@pytest.mark.parametrize(("space", "loss"), [(BRANIN, branin), (CUBE, hartmann)], ids=["branin", "hartmann"])
def test_learning_beats_chance_over_20_seeds_with_four_open(space: Space, loss: Callable[[Mapping[str, Any]], float]):
    medians = {
        name: statistics.median(searched(name, space, loss, seed, 24) for seed in range(20))
        for name in ("random", "bayesian")
    }
    assert medians["bayesian"] < medians["random"]


@pytest.mark.parametrize("name", ["grid", "random", "bayesian"])
def test_a_study_that_went_through_json_proposes_the_same_11_12(name: str):
    """11, 12: what is restored is what was measured, and nothing is proposed anew in its place."""
    rng, trials = random.Random(7), list[Trial]()
    for _ in range(8):
        trials, _ = asked(strategy_of(name, MIXED, OBJECTIVE, 3), trials, 2)
        trials[-1] = ended(trials[-1], rng)
    kept = json.loads(json.dumps([[trial.number, trial.parameters, trial.progress, trial.metrics] for trial in trials]))
    restored = [
        Trial(number=number, parameters=parameters, progress=Progress(progress), metrics=metrics)
        for number, parameters, progress, metrics in kept
    ]
    assert points(restored) == points(trials)
    again, _ = asked(strategy_of(name, MIXED, OBJECTIVE, 3), restored, 3)
    expected, _ = asked(strategy_of(name, MIXED, OBJECTIVE, 3), trials, 3)
    assert points(again) == points(expected)


@pytest.mark.parametrize("name", ["random", "bayesian"])
def test_what_is_open_is_told_under_its_own_parameters_13_14(name: str):
    """13: any number open, and each result is its own trial's. 14: no point twice, none under another's parameters."""
    strategy, trials = strategy_of(name, CUBE, LOSS, 1), list[Trial]()
    for _ in range(10):
        trials, _ = asked(strategy, trials, 4)
        for place in (len(trials) - 1, len(trials) - 3):  # the later ones first; the others stay open
            loss = hartmann(trials[place].parameters)
            trials[place] = replace(trials[place], progress=Progress.MEASURED, metrics={"loss": loss})
    assert len({identity(point) for point in points(trials)}) == 40
    for trial in trials:
        assert trial.metrics.get("loss", hartmann(trial.parameters)) == hartmann(trial.parameters)


@pytest.mark.parametrize("name", ["grid", "random", "bayesian"])
def test_the_order_of_results_matters_to_nobody_who_does_not_learn(name: str):
    """Same seed, same sequence: for grid and random whatever the results and their order are; for bayesian for the same
    results of the same trials, in whichever order they came."""

    def sequence(order: list[int], losses: bool) -> list[dict[str, Any]]:
        trials, _ = asked(strategy_of(name, CUBE, LOSS, 5), [], 12)
        for place in order:
            metrics = {"loss": float(place) if losses else -float(place)}
            trials[place] = replace(trials[place], progress=Progress.MEASURED, metrics=metrics)
        return points(asked(strategy_of(name, CUBE, LOSS, 5), trials, 4)[0])

    order = list(range(10))
    assert sequence(order, True) == sequence(order[::-1], True)
    assert (sequence(order, True) == sequence(order, False)) is (name != "bayesian")


def test_failed_trials_are_a_wall_and_no_number_15_18():
    """15: a crash is never the best. 18: how long it took to fail teaches nothing; only that it fails there does."""

    def drawn(duration_s: float, kind: str) -> list[dict[str, Any]]:
        rng, trials = random.Random(2), list[Trial]()
        for number in range(1, 41):
            point = CUBE.draw(rng)
            if float(point["a"]) > 0.4:  # everything on that side runs out of memory
                fields: dict[str, Any] = {"progress": Progress.FAILED, "kind": kind, "duration_s": duration_s}
            else:
                fields = {"progress": Progress.MEASURED, "metrics": {"loss": 1.0}}  # a number as good as any other
            trials.append(Trial(number=number, parameters=point, **fields))
        assert best(LOSS, contenders(LOSS, trials)) is not None
        assert all(float(one.parameters["a"]) <= 0.4 for one in contenders(LOSS, trials))
        return points(asked(strategy_of("bayesian", CUBE, LOSS, 1), trials, 20)[0])[40:]

    quick = drawn(1.0, "out_of_memory")
    assert quick == drawn(1000.0, "out_of_memory")
    beyond = sum(float(point["a"]) > 0.45 for point in quick)
    assert beyond <= 6, "it goes on beyond the wall"
    # A taken port says nothing about where it failed, so it keeps nobody away.
    assert sum(float(point["a"]) > 0.45 for point in drawn(1.0, "port_taken")) > beyond


@pytest.mark.parametrize("seed", range(10))
def test_6_trials_of_a_grid_of_18_show_every_value_16(seed: int):
    space = space_of({"tp": [1, 2, 4], "batch": [8, 16, 32], "chunked": [True, False]})
    trials, exhausted = asked(strategy_of("grid", space, LOSS, seed), [], 6)
    assert len(space.grid()) == 18
    assert not exhausted
    for name in space.names:
        used = [trial.parameters[name] for trial in trials]
        assert max(used.count(value) for value in used) <= 3  # nor does one of them take most
        assert len(set(used)) == {"tp": 3, "batch": 3, "chunked": 2}[name]


def test_a_grid_takes_ranges_too_16():
    space = space_of(
        {"a": {"type": "integer", "low": 1, "high": 100}, "b": {"type": "continuous", "low": 0, "high": 1}}
    )
    assert len(asked(strategy_of("grid", space, LOSS, 1), [], 100)[0]) == 25


def test_a_limit_has_no_cliff_in_the_value_17():
    objective = objective_of({"maximize": "speed"}, ["ms <= 200"])

    def measured(number: int, ms: float) -> Trial:
        metrics = {"speed": 100.0, "ms": ms}
        return Trial(number=number, parameters={"a": number}, progress=Progress.MEASURED, metrics=metrics)

    ranked = contenders(objective, [measured(1, 199.8), measured(2, 200.02)])
    assert [one.metrics["speed"] for one in ranked] == [100.0, 100.0]  # 17: the value stays what was measured
    assert [one.feasible for one in ranked] == [True, False]
    assert objective.limits[0].excess({"ms": 200.02}) == pytest.approx(0.0001)
