"""Successive halving: exact counts, the same promotions in any order, and only whole measurements to judge by."""

from __future__ import annotations

import random
from typing import Any

import pytest
from msgspec.structs import replace

from evalfleet.tune.plan import next_step
from evalfleet.tune.ranking import contenders
from evalfleet.tune.strategies.halving import halving_of, rungs
from evalfleet.tune.study import Study, study_of
from evalfleet.tune.tasks import trial_spec
from evalfleet.tune.trial import Progress, Role, Trial, Wanted


def study(**fields: Any) -> Study:
    table: dict[str, Any] = {
        "study": {
            "name": "s",
            "objective": {"maximize": "speed"},
            "strategy": "halving",
            "trials": 27,
            "halving": {"resource": "seconds", "min": 10, "max": 90},
            **fields,
        },
        "parameters": {"a": {"type": "integer", "low": 1, "high": 100_000}},
        "trial": {"command": ["true"]},
    }
    return study_of(table)


def speed(trial: Trial) -> float:
    """Another one on every rung, so that a lower rung's leader is not always the winner."""
    return random.Random(f"{trial.point}:{trial.rung}").random()


def played(one: Study, parallel: int, rng: random.Random, failing: float = 0.0, stop_at: int = 10**9) -> list[Trial]:
    trials: list[Trial] = []
    while len(trials) < stop_at:
        open_ = [place for place, trial in enumerate(trials) if trial.progress is Progress.OPEN]
        step = next_step(one, one.searcher(), trials, parallel - len(open_), told=len(trials))
        if step.over is not None:
            return trials
        for wanted in step.wanted:
            final = wanted.rung == one.top
            trials.append(
                Trial(
                    number=len(trials) + 1,
                    role=wanted.role,
                    parameters=wanted.parameters,
                    rung=wanted.rung,
                    final=final,
                )
            )
        open_ = [place for place, trial in enumerate(trials) if trial.progress is Progress.OPEN]
        assert open_, "it waits for nothing"
        for place in rng.sample(open_, rng.randint(1, len(open_))):
            bad = random.Random(f"{trials[place].point}:{trials[place].rung}:fails").random() < failing
            fields: dict[str, Any] = {"progress": Progress.FAILED} if bad else {
                "progress": Progress.MEASURED, "metrics": {"speed": speed(trials[place])}}  # fmt: skip
            trials[place] = replace(trials[place], **fields)
    return trials


def ladder(trials: list[Trial]) -> list[set[str]]:
    return [{trial.point for trial in trials if trial.rung == rung} for rung in range(3)]


@pytest.mark.parametrize(
    ("table", "budgets"),
    [
        ({"min": 10, "max": 270}, (10, 30, 90, 270)),
        ({"min": 1, "max": 10}, (1, 3, 10)),
        ({"min": 4, "max": 10}, (10,)),
        ({"min": 0.1, "max": 0.9}, (0.1, 0.3, 0.9)),
        ({"min": 1, "max": 16, "factor": 4}, (1, 4, 16)),
        ({"min": 5, "max": 5}, (5,)),
    ],
)
def test_rungs_end_at_the_most_and_begin_at_the_least(table: dict[str, Any], budgets: tuple[float, ...]):
    assert halving_of({"resource": "seconds", **table}).budgets == pytest.approx(budgets)


@pytest.mark.parametrize("parallel", [1, 4, 40])
def test_counts_are_exact_and_the_best_go_up(parallel: int):
    trials = played(study(), parallel, random.Random(parallel))
    assert [len(one) for one in ladder(trials)] == [27, 9, 3]
    assert len(trials) == 39
    for below, above in ((0, 1), (1, 2)):
        best = sorted((t for t in trials if t.rung == below), key=lambda t: -t.metrics["speed"])
        assert {trial.point for trial in trials if trial.rung == above} == {
            trial.point for trial in best[: len(best) // 3]
        }


def test_who_goes_up_does_not_depend_on_the_order_or_on_how_many_are_open():
    ladders = [ladder(played(study(), parallel, random.Random(parallel), 0.2)) for parallel in range(1, 30)]
    assert all(one == ladders[0] for one in ladders)
    assert len(ladders[0][0]) == 27


def test_one_goes_up_before_its_rung_is_whole_when_nothing_can_displace_it():
    trials = played(study(), 1, random.Random(1))
    first = next(trial.number for trial in trials if trial.rung == 1)
    assert first <= 27  # before the last of the lowest rung
    assert {trial.number for trial in trials if trial.rung == 0} != set(range(1, 28))


def test_failed_ones_never_go_up():
    for seed in range(20):
        trials = played(study(seed=seed), 5, random.Random(seed), failing=0.6)
        failed = {(trial.point, trial.rung) for trial in trials if trial.progress is Progress.FAILED}
        assert failed
        assert not any(
            (trial.point, (trial.rung or 0) - 1) in failed for trial in trials if trial.role is Role.PROMOTED
        )


def test_only_the_highest_rung_gives_numbers_to_judge_by():
    one = study(baseline={"a": 7}, repeats=2, contenders=2)
    trials = played(one, 4, random.Random(2))
    ranked = contenders(one.objective, trials)
    assert {trial.point for trial in trials if trial.rung == one.top} == {
        next(trial.point for trial in trials if trial.parameters == contender.parameters) for contender in ranked
    }
    assert len(ranked) == 4  # three, and the baseline
    assert {trial.rung for trial in trials if trial.role in (Role.BASELINE, Role.REPEAT)} == {one.top}
    assert sorted(len(contender.values) for contender in ranked) == [1, 2, 2, 2]


def test_whoever_drives_it_next_goes_on_in_the_same_way():
    whole = played(study(), 1, random.Random(3))
    for cut, trial in enumerate(whole):
        (wanted,) = next_step(study(), study().searcher(), whole[:cut], 1).wanted
        assert (wanted.parameters, wanted.rung, wanted.role) == (trial.parameters, trial.rung, trial.role)


def test_more_trials_fill_the_rungs_up():
    one, more = study(trials=9), study(trials=27)
    before = played(one, 1, random.Random(1))
    assert [len(rung.trials) for rung in rungs(one.halving, one.objective, before, 9)] == [9, 3, 1]  # pyright: ignore[reportArgumentType]
    trials = list(before)
    while True:
        step = next_step(more, more.searcher(), trials, 1)
        if step.over is not None:
            break
        (wanted,) = step.wanted
        new = Trial(
            number=len(trials) + 1,
            role=wanted.role,
            parameters=wanted.parameters,
            rung=wanted.rung,
            final=wanted.rung == more.top,
        )
        trials.append(replace(new, progress=Progress.MEASURED, metrics={"speed": speed(new)}))
    assert [len(one) for one in ladder(trials)] == [27, 9, 3]


def test_a_small_space_ends_and_still_finds_its_winner():
    table = dict(study().table)
    table["parameters"] = {"a": [1, 2, 3, 4]}
    trials = played(study_of(table), 2, random.Random(1))
    assert [len(one) for one in ladder(trials)] == [4, 1, 1]


def test_a_trial_is_told_its_share():
    spec = trial_spec(study(), Wanted(role=Role.PROMOTED, parameters={"a": 1}, rung=1), 5)
    assert spec.payload["budget"] == {"resource": "seconds", "amount": 30, "max": 90}
    assert spec.payload["rung"] == 1
