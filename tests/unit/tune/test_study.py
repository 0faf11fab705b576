"""What a study does next, who leads it, and what its file may say."""

from __future__ import annotations

import random
from typing import Any

import pytest
from msgspec.structs import replace

from evalfleet.errors import InputError
from evalfleet.tune.objective import objective_of
from evalfleet.tune.plan import next_step
from evalfleet.tune.ranking import best, contenders, front, verdict
from evalfleet.tune.space import identity
from evalfleet.tune.study import Study, study_of
from evalfleet.tune.trial import Progress, Role, Trial


def study(parameters: dict[str, Any] | None = None, trial: dict[str, Any] | None = None, **fields: Any) -> Study:
    return study_of(
        {
            "study": {"name": "s", "objective": {"maximize": "speed"}, **fields},
            "parameters": parameters or {"a": {"type": "integer", "low": 1, "high": 1000}},
            "trial": {"command": ["true"], **(trial or {})},
        }
    )


def measured(number: int, speed: float, role: Role = Role.SEARCH, **metrics: float) -> Trial:
    return Trial(
        number=number,
        parameters={"a": number},
        role=role,
        progress=Progress.MEASURED,
        metrics={"speed": speed, **metrics},
    )


def played(one: Study, parallel: int, rng: random.Random) -> tuple[list[Trial], str]:
    """Drive a study, with trials that end in any order; the plan is asked by another instance every time."""
    trials: list[Trial] = []
    told = 0
    for _ in range(10_000):
        open_ = [place for place, trial in enumerate(trials) if trial.progress is Progress.OPEN]
        step = next_step(one, one.searcher(), trials, parallel - len(open_), told)
        if step.trouble is not None:
            told = len(trials)
            step = next_step(one, one.searcher(), trials, parallel - len(open_), told)
        if step.over is not None:
            assert open_ == []
            return trials, step.over
        for wanted in step.wanted:
            final = wanted.rung in (None, one.top)
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
        assert 0 < len(open_) <= parallel
        for place in rng.sample(open_, rng.randint(1, len(open_))):
            state = rng.choice([Progress.MEASURED] * 4 + [Progress.FAILED, Progress.VOID])
            metrics = {"speed": rng.random()} if state is Progress.MEASURED else {}
            trials[place] = replace(trials[place], progress=state, metrics=metrics)
    raise AssertionError("it does not end")


@pytest.mark.parametrize("parallel", [1, 3, 8])
def test_100_trials_are_exactly_100(parallel: int):
    trials, over = played(study(trials=100), parallel, random.Random(parallel))
    assert len(trials) == len({identity(trial.parameters) for trial in trials}) == 100
    assert over == "all 100 trials are done"


@pytest.mark.parametrize("strategy", ["grid", "random"])
def test_a_space_of_6_points_ends_at_6(strategy: str):
    trials, over = played(study({"a": [1, 2, 3], "b": [1, 2]}, trials=20, strategy=strategy), 4, random.Random(1))
    assert len(trials) == 6
    assert over == "the space has no more points; 6 of 20 trials are done"


def test_the_baseline_comes_first_and_contenders_are_measured_again():
    for seed in range(20):
        one = study(trials=10, repeats=3, contenders=2, baseline={"a": 7})
        trials, _ = played(one, 4, random.Random(seed))
        assert trials[0].role is Role.BASELINE
        assert sum(trial.role is Role.SEARCH for trial in trials) == 10
        assert all(trial.parameters != {"a": 7} for trial in trials if trial.role is Role.SEARCH)
        repeats = [identity(trial.parameters) for trial in trials if trial.role is Role.REPEAT]
        assert all(repeats.count(name) == 2 for name in repeats)
        first = contenders(one.objective, [trial for trial in trials if trial.role is Role.SEARCH])
        assert {identity(c.parameters) for c in first[:2]} == set(repeats) - {identity({"a": 7})}


def test_more_trials_go_on_from_what_is_there():
    rng = random.Random(3)
    trials, _ = played(study(trials=5), 2, rng)
    step = next_step(study(trials=8), study(trials=8).searcher(), trials, 10)
    assert len(step.wanted) == 3
    assert {identity(w.parameters) for w in step.wanted}.isdisjoint(identity(t.parameters) for t in trials)


def test_feasible_ones_come_first_whatever_their_speed():
    objective = objective_of({"maximize": "speed"}, ["ms <= 200"])
    ranked = contenders(objective, [measured(1, 900, ms=200.1), measured(2, 10, ms=200), measured(3, 20, ms=100)])
    assert [one.parameters["a"] for one in ranked] == [3, 2, 1]
    assert ranked[2].broken == ("ms <= 200 (it was 200.1)",)
    found = best(objective, ranked)
    assert found is not None
    assert found.parameters == {"a": 3}
    assert best(objective, ranked[2:]) is None


def test_a_failed_trial_is_never_best():
    objective = objective_of({"maximize": "speed"}, [])
    failed = Trial(number=1, parameters={"a": 1}, progress=Progress.FAILED)
    ranked = contenders(objective, [failed, measured(2, -5000)])
    assert [one.parameters["a"] for one in ranked] == [2]


def test_a_metric_that_is_missing_keeps_no_limit():
    objective = objective_of({"minimise": "ms"}, ["loss < 1"])
    assert objective.missing({"ms": 1.0}) == ["loss"]
    assert not objective.feasible({"ms": 1.0})


def test_the_front_has_those_that_nobody_beats():
    objective = objective_of([{"maximize": "speed"}, {"minimize": "ms"}], [])
    trials = [measured(1, 10, ms=10), measured(2, 20, ms=20), measured(3, 9, ms=11), measured(4, 20, ms=19)]
    ranked = contenders(objective, trials)
    assert sorted(int(one.parameters["a"]) for one in front(objective, ranked)) == [1, 4]


def test_noise_is_not_called_better():
    objective = objective_of({"maximize": "speed"}, [])

    def told(base: list[float], lead: list[float]) -> str:
        trials = [replace(measured(1, value, Role.BASELINE), number=n) for n, value in enumerate(base, 1)]
        trials += [replace(measured(2, value), number=10 + n) for n, value in enumerate(lead, 1)]
        ranked = contenders(objective, trials)
        leader = best(objective, ranked)
        assert leader is not None
        return verdict(objective, leader, next(one for one in ranked if one.is_baseline))

    assert "not distinguishable" in told([100, 110, 90], [105, 112, 95])
    assert "do not overlap" in told([100, 101, 99], [150, 151, 149])
    assert "measured once" in told([100], [120])
    assert told([100, 99], [90, 91]) == "no configuration beats the baseline"


def test_a_trial_asks_for_what_its_own_parameters_need():
    one = study({"tp": [1, 2, 4]}, {"gpus": "tp", "memory_mb": "8000 * tp"})
    assert [one.trial.requests({"tp": tp}).gpus for tp in (1, 2, 4)] == [1, 2, 4]
    assert one.trial.requests({"tp": 2}).memory_mb == 16000
    with pytest.raises(InputError, match="whole number"):
        study({"tp": [1]}, {"gpus": "tp / 2"}).trial.requests({"tp": 1})


@pytest.mark.parametrize(
    ("fields", "part"),
    [
        ({"objective": {"maximize": "a", "minimize": "b"}}, "study.objective"),
        ({"objective": {"biggest": "a"}}, "must be maximize or minimize"),
        ({"constraints": ["ms is low"]}, "not a limit"),
        ({"constraints": ["__import__('os') <= 1"]}, "not a limit"),
        ({"strategy": "halving"}, "study.halving: goes with"),
        ({"halving": {"min": 1, "max": 9}}, "study.halving: goes with"),
        ({"strategy": "halving", "halving": {"min": 0, "max": 9}}, "study.halving.min: expected a number above 0"),
        ({"strategy": "halving", "halving": {"min": 9, "max": 1}}, "swap them"),
        ({"strategy": "halving", "halving": {"min": 1, "max": 9, "factor": 1}}, "from 2 to 100"),
        ({"strategy": "halving", "halving": {"min": 1, "max": 9, "faktor": 3}}, 'did you mean "factor"'),
        ({"trials": 0}, "out of range"),
        ({"max_parallel_experiments": 0}, "out of range"),
        ({"timeout_per_trial": "soon"}, "not a duration"),
        ({"trails": 3}, 'did you mean "trials"'),
        ({"baseline": {}}, "at least one parameter"),
    ],
)
def test_a_wrong_study_is_refused_in_words(fields: dict[str, Any], part: str):
    with pytest.raises(InputError, match=part):
        study(**fields)
