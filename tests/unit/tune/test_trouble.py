"""When a study stops for somebody to look, how it goes on, and how its winner is confirmed alone."""

from __future__ import annotations

import random
from typing import Any

import pytest
from msgspec.structs import replace

from evalfleet.core.gpus.cards import Card
from evalfleet.model import Requests
from evalfleet.tune.confirmation import confirmation
from evalfleet.tune.gpu_capacity import crowding
from evalfleet.tune.importance import importance
from evalfleet.tune.plan import Step, next_step
from evalfleet.tune.ranking import contenders
from evalfleet.tune.stop_conditions import trouble
from evalfleet.tune.study import Study, study_of
from evalfleet.tune.trial import Progress, Role, Trial


def study(**fields: Any) -> Study:
    return study_of(
        {
            "study": {"name": "s", "objective": {"maximize": "speed"}, "trials": 6, **fields},
            "parameters": {"a": {"type": "integer", "low": 1, "high": 1000}},
            "trial": {"command": ["true"]},
        }
    )


def failed(number: int, evidence: str = "no", kind: str = "bad_exit", role: Role = Role.SEARCH) -> Trial:
    return Trial(
        number=number,
        parameters={"a": number},
        role=role,
        progress=Progress.FAILED,
        key=f"trial_{number:04d}",
        kind=kind,
        evidence=evidence,
    )


def measured(number: int, speed: float = 1.0, role: Role = Role.SEARCH, a: int | None = None) -> Trial:
    parameters = {"a": number if a is None else a}
    return Trial(
        number=number,
        parameters=parameters,
        role=role,
        progress=Progress.MEASURED,
        metrics={"speed": speed},
        key=f"trial_{number:04d}",
    )


def step(one: Study, trials: list[Trial], free: int = 1, told: int = 0) -> Step:
    return next_step(one, one.searcher(), trials, free, told)


def test_a_failed_baseline_stops_the_study_and_says_what_to_change():
    one = study(baseline={"a": 7})
    trials = [failed(1, "unrecognized arguments: --tpp", "bad_flag", Role.BASELINE), measured(2)]
    found = step(one, trials)
    assert found.wanted == ()
    assert found.trouble is not None
    assert "the baseline failed (trial_0001: bad_flag: unrecognized arguments: --tpp)" in found.trouble
    assert "fix the flags in [trial]" in found.trouble


def test_after_the_repair_the_baseline_is_measured_anew_and_the_search_goes_on():
    one = study(baseline={"a": 7})
    trials = [failed(1, role=Role.BASELINE), measured(2)]
    again = step(one, trials, free=3, told=2)
    assert [wanted.role for wanted in again.wanted] == [Role.BASELINE, Role.SEARCH, Role.SEARCH]
    still = step(one, [*trials, failed(3, role=Role.BASELINE)], told=2)
    assert still.trouble is not None


def test_equal_failures_in_a_row_stop_it_and_others_do_not():
    same = [failed(number, f"port 80{number:02d} is taken", "port_taken") for number in range(1, 6)]
    assert trouble(same[:4], 0) is None
    found = trouble(same, 0)
    assert found is not None
    assert "the last 5 trials failed in the same way" in found
    assert "stop the process that uses the port" in found
    assert trouble([*same[:3], failed(4, "another"), failed(5, "third")], 0) is None
    assert trouble([*same[:4], measured(5)], 0) is None
    assert trouble(same, told=5) is None  # somebody has seen them


def test_a_wall_of_the_space_is_no_trouble():
    # 6 of 10 fail where they are too large: five in a row are no news there, but twenty are.
    rng = random.Random(4)
    trials = [failed(n, "out of memory") if rng.random() < 0.6 else measured(n) for n in range(1, 40)]
    trials += [failed(n, "out of memory") for n in range(40, 45)]
    assert trouble(trials, 0) is None
    trials += [failed(n, "out of memory") for n in range(45, 60)]
    assert trouble(trials, 0) is not None
    # After a hundred good ones five are.
    assert trouble([*(measured(n) for n in range(1, 101)), *(failed(n) for n in range(101, 106))], 0) is not None


def test_the_winner_is_measured_alone_with_nothing_beside_it():
    one = study(trials=3, baseline={"a": 7}, max_parallel_experiments=4, repeats=2, contenders=1)
    trials = [measured(1, 1.0, Role.BASELINE, a=7), measured(2, 5.0), measured(3, 4.0), measured(4, 3.0)]
    trials += [measured(5, 6.0, Role.REPEAT, a=2), measured(6, 1.0, Role.REPEAT, a=7)]
    roles: list[tuple[Role, Any]] = []
    while (found := step(one, trials, free=4)).over is None:
        (wanted,) = found.wanted
        assert wanted.role is Role.CONFIRM
        trials.append(Trial(number=len(trials) + 1, role=wanted.role, parameters=wanted.parameters))
        assert step(one, trials, free=3) == Step()
        assert step(study(trials=9, max_parallel_experiments=4), trials, free=3) == Step()  # not even new ones
        trials[-1] = measured(len(trials), 3.5, Role.CONFIRM, a=int(wanted.parameters["a"]))
        roles.append((wanted.role, wanted.parameters["a"]))
    assert [a for _, a in roles] == [2, 2, 7, 7]


def test_confirm_is_the_default_only_where_trials_run_side_by_side():
    assert study(max_parallel_experiments=4).confirm
    assert not study().confirm
    assert study(confirm=True).confirm
    assert not study(confirm=False, max_parallel_experiments=4).confirm


def test_what_alone_is_worse_than_the_second_is_said():
    one = study()
    trials = [measured(1, 10.0), measured(2, 9.0), measured(3, 8.0, Role.CONFIRM, a=1)]
    ranked = contenders(one.objective, trials)
    assert [contender.metrics["speed"] for contender in ranked] == [10.0, 9.0]  # the lone one changes no place
    found = confirmation(one.objective, trials, ranked)
    assert found is not None
    assert found.change == pytest.approx(-0.2)
    assert "worse than the second, trial_0002" in found.text
    better = confirmation(one.objective, [*trials[:2], measured(3, 9.5, Role.CONFIRM, a=1)], ranked)
    assert better is not None
    assert "worse than the second" not in better.text
    assert confirmation(one.objective, trials[:2], ranked) is None


def test_importance_shows_what_matters_and_is_silent_below_ten():
    one = study_of(
        {
            "study": {"name": "s", "objective": {"maximize": "speed"}},
            "parameters": {"a": {"type": "continuous", "low": 0, "high": 1}, "b": [1, 2, 3], "c": ["x", "y"]},
            "trial": {"command": ["true"]},
        }
    )
    rng = random.Random(1)
    trials: list[Trial] = []
    for number in range(1, 61):
        point = one.space.draw(rng)
        value = 10 * float(point["a"]) + (2 if point["c"] == "x" else 0) + rng.gauss(0, 0.3)
        trials.append(replace(measured(number, value), parameters=point))
    found = importance(one.space, one.objective, trials)
    assert found is not None
    shares = dict(found)
    assert next(iter(shares)) == "a"
    assert shares["a"] > 0.7
    assert shares["b"] < 0.1
    assert importance(one.space, one.objective, trials[:9]) is None
    # Two that always went together explain the same; together they explain no more than all.
    together = [
        replace(trial, parameters={**trial.parameters, "b": round(float(trial.parameters["a"]) * 2) + 1})
        for trial in trials
    ]
    both = dict(importance(one.space, one.objective, together) or ())
    assert both["b"] > 0.4
    assert 0.99 < sum(both.values()) <= 1 + 1e-9
    flat = [replace(trial, metrics={"speed": 1.0}) for trial in trials]
    assert importance(one.space, one.objective, flat) is None


def test_more_trials_than_the_gpus_carry_is_said_aloud():
    cards = [[Card(host="h", index=index, uuid=f"GPU-{index}", memory_mb=80_000) for index in range(4)]]
    one, two = Requests(gpus=1), Requests(gpus=2)
    assert crowding(4, [one], cards, ()) is None
    assert crowding(8, [one, two], cards, ()) == (
        "8 parallel trials were requested, but 4 GPUs carry at most 4 that need 1 GPU each; the others wait for a free GPU"
    )
    assert crowding(4, [one], cards, (0, 1)) is not None  # --gpus 0,1
    assert "at most 2 that need 2 GPUs each" in (crowding(4, [two], cards, ()) or "")
    assert crowding(8, [Requests(gpus=1, gpu_memory_mb=40_000)], cards, ()) is None
    assert crowding(9, [Requests(gpus=1, gpu_memory_mb=40_000)], cards, ()) is not None
    used = [[replace(card, used_mb=600) for card in cards[0]]]  # so two times 40,000 do not fit
    assert crowding(5, [Requests(gpus=1, gpu_memory_mb=40_000)], used, ()) is not None
    assert crowding(100, [Requests()], cards, ()) is None  # needs none
    assert crowding(4, [one], [[]], ()) is None  # held, and says so itself
