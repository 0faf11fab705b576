"""The search space, its expressions, and what its strategies make of it."""

from __future__ import annotations

import math
import random
from collections import Counter

import pytest

from evalfleet.errors import InputError
from evalfleet.tune import expression
from evalfleet.tune.objective import objective_of
from evalfleet.tune.space import Span, space_of
from evalfleet.tune.strategies.base import strategy_of
from evalfleet.tune.strategies.grid import Grid
from evalfleet.tune.strategies.random import Random
from evalfleet.tune.trial import Progress, Trial


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("tp == 4 and batch > 256", True),
        ("not chunked or batch // 3 == 100", True),
        ("dtype in ['fp8', 'int8']", True),
        ("1 < tp <= 4", True),
        ("min(tp, 2) * 8000 + batch % 7", 16006),
        ("-tp < 0 and chunked == true", True),
        ("batch > 256 and chunked == false", False),
    ],
)
def test_expressions(text: str, wanted: object):
    values = {"tp": 4, "batch": 300, "chunked": True, "dtype": "fp8"}
    assert expression.parse(text, values).value(values) == wanted


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "tp.real",
        "tp ** 9",
        "[x for x in tp]",
        "lambda: 1",
        "open('x')",
        "tp[0]",
        "f'{tp}'",
        "tp = 1",
        "",
        "min()",
        "tp if tp else 1",
        "(" * 300 + "tp" + ")" * 300,
        "tp == 1 and " * 200 + "tp",
    ],
)
def test_nothing_else_is_an_expression(text: str):
    with pytest.raises(InputError):
        expression.parse(text, ["tp"])


def test_an_unknown_name_is_told_with_the_nearest():
    with pytest.raises(InputError, match='did you mean "batch"'):
        expression.parse("bacth > 1", ["tp", "batch"])


def test_a_text_is_never_multiplied():
    with pytest.raises(InputError, match="not a number"):
        expression.parse("a * 1000000000", ["a"]).value({"a": "x"})
    with pytest.raises(InputError, match="division"):
        expression.parse("1 / a", ["a"]).value({"a": 0})


@pytest.mark.parametrize(
    ("table", "part"),
    [
        ({}, "is empty; define at least one"),
        ({"a": []}, "at least one"),
        ({"a": [1, 1]}, "is listed twice"),
        ({"a": 3}, "expected a list"),
        ({"a": {"type": "integr", "low": 1, "high": 2}}, 'did you mean "integer"'),
        ({"a": {"type": "integer", "low": 3, "high": 2}}, "above high"),
        ({"a": {"type": "integer", "low": 0, "high": 2, "log": True}}, "above 0"),
        ({"a": {"type": "integer", "low": 0.5, "high": 2}}, "whole number"),
        ({"a": {"type": "continuous", "low": 0, "high": math.inf}}, "a number"),
        ({"a": {"type": "continuous", "lo": 0, "high": 1}}, "unknown key"),
        ({"a": {"type": "integer", "low": 1, "high": 2, "when": "b == 1"}, "b": [1]}, "no parameter"),
        ({"a": [1], "forbid": "a == 1"}, "list of texts"),
        ({"a b": [1]}, "cannot be a name"),
    ],
)
def test_a_wrong_space_is_refused_in_words(table: dict[str, object], part: str):
    with pytest.raises(InputError, match=part):
        space_of(table)


def test_true_and_1_are_different_values():
    assert len(space_of({"a": [True, 1]}).grid()) == 2


def test_a_log_range_gives_every_factor_the_same_chance():
    span = Span(name="a", low=1, high=1024, whole=True, log=True)
    rng = random.Random(1)
    below = sum(span.draw(rng) < 32 for _ in range(2000))  # pyright: ignore[reportOperatorIssue]
    assert 850 < below < 1150
    assert span.grid() == (1, 6, 32, 181, 1024)
    assert Span(name="a", low=3, high=5, whole=True).grid() == (3, 4, 5)


def test_a_grid_of_18_with_6_trials_shows_every_value():
    space = space_of({"tp": [1, 2, 4], "batch": [8, 16, 32], "chunked": [True, False]})
    for seed in range(100):
        points = Grid(space, seed).propose([], 6).points
        for name, values in (("tp", 3), ("batch", 3), ("chunked", 2)):
            counts = Counter(point[name] for point in points)
            assert len(counts) == values, (seed, name, counts)
            assert max(counts.values()) <= 6 // values + 1, (seed, name, counts)


def test_a_grid_takes_ranges_too():
    space = space_of({"a": {"type": "continuous", "low": 0, "high": 1, "points": 3}, "b": [1, 2]})
    assert sorted({point["a"] for point in space.grid()}) == [0.0, 0.5, 1.0]
    assert Grid(space, 0).propose([], 100).exhausted


def test_a_grid_that_is_too_large_says_so():
    with pytest.raises(InputError, match="has 9,765,625 points"):
        space_of({f"p{i}": {"type": "integer", "low": 1, "high": 100} for i in range(10)}).grid()


def test_random_trial_n_is_the_same_whoever_else_is_open():
    space = space_of({"a": {"type": "integer", "low": 1, "high": 10**6}})
    together = Random(space, 7).propose([], 4).points
    trials: list[Trial] = []
    for number in range(1, 5):
        (point,) = Random(space, 7).propose(trials, 1).points
        trials.append(Trial(number=number, parameters=point, progress=Progress.MEASURED, metrics={"x": 1.0}))
    assert tuple(trial.parameters for trial in trials) == together


def test_bayesian_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(__import__("sys").modules, "optuna", None)
    with pytest.raises(InputError, match=r"evalfleet\[tune\]"):
        strategy_of("bayesian", space_of({"a": [1]}), objective_of({"minimize": "x"}, []), 0)


@pytest.mark.filterwarnings("ignore::Warning:optuna")
def test_bayesian_learns_and_keeps_to_the_limits():
    pytest.importorskip("optuna")
    space = space_of({name: {"type": "continuous", "low": -5, "high": 5} for name in ("a", "b")})
    objective = objective_of({"minimize": "loss"}, ["a >= 0"])

    def found(name: str, seed: int) -> float:
        strategy, trials = strategy_of(name, space, objective, seed), list[Trial]()
        while len(trials) < 40:
            for point in strategy.propose(trials, 4).points:
                a, b = float(point["a"]), float(point["b"])
                metrics = {"loss": (a - 1) ** 2 + (b + 2) ** 2, "a": a}
                trials.append(
                    Trial(number=len(trials) + 1, parameters=point, progress=Progress.MEASURED, metrics=metrics)
                )
        return min(trial.metrics["loss"] for trial in trials if trial.metrics["a"] >= 0)

    seeds = range(5)
    learnt = sorted(found("bayesian", seed) for seed in seeds)[2]
    assert learnt < sorted(found("random", seed) for seed in seeds)[2]
