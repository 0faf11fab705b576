"""Repeated tasks: pass@k, spread, and intervals with the task as the unit."""

from __future__ import annotations

import math
from itertools import combinations
from random import Random
from statistics import stdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalfleet.core.statistics.repeats import Repeats, overall, pass_at
from evalfleet.core.statistics.scores import clustered, student95, wilson


def repeats(*scores: float, task: str = "t", lost: int = 0) -> Repeats:
    return Repeats(
        task=task,
        domain="d",
        episodes=len(scores) + lost,
        counted=len(scores),
        successes=sum(score == 1 for score in scores),
        score_sum=sum(scores),
        square_sum=sum(score * score for score in scores),
        low=min(scores, default=None),
        high=max(scores, default=None),
    )


@given(st.lists(st.booleans(), min_size=1, max_size=8), st.data())
def test_pass_at_k_is_the_share_of_all_choices_with_a_success(ends: list[bool], data: st.DataObject):
    k = data.draw(st.integers(1, len(ends)))
    choices = list(combinations(ends, k))
    assert pass_at(len(ends), sum(ends), k) == pytest.approx(sum(map(any, choices)) / len(choices))


def test_a_task():
    one = repeats(1.0, 0.0, 0.25)
    assert one.mean == pytest.approx(1.25 / 3)
    assert one.deviation == pytest.approx(stdev([1.0, 0.0, 0.25]))
    assert [one.pass_at(k) for k in (1, 2, 3, 4)] == [pytest.approx(1 / 3), pytest.approx(2 / 3), 1.0, None]
    assert repeats().mean is None
    assert repeats(0.5).deviation is None


def test_a_run_weighs_its_tasks_equally():
    found = overall([repeats(1, 1, 1), repeats(0, 0, 1), repeats(0, lost=2), repeats(lost=3)])
    assert (found.tasks, found.episodes, found.most) == (4, 12, 3)
    assert (found.always, found.sometimes, found.never) == (1, 1, 1)
    assert found.mean == pytest.approx((1 + 1 / 3 + 0) / 3)
    assert [(one.k, one.tasks) for one in found.pass_at] == [(1, 3), (2, 2), (3, 2)]
    assert [one.mean for one in found.pass_at] == pytest.approx([4 / 9, (1 + 2 / 3) / 2, 1.0])
    assert overall([repeats(lost=2)]).pass_at == ()


def test_alike_episodes_tell_nothing_new():
    once, thrice = [(1, 1)] * 6 + [(0, 1)] * 6, [(3, 3)] * 6 + [(0, 3)] * 6
    a, b = clustered(thrice), clustered(once)
    assert a is not None
    assert b is not None
    assert (a.low, a.high) == pytest.approx((b.low, b.high))
    assert clustered([(3, 3)] * 10) == wilson(10, 10), "without any spread: as many as there are tasks"
    independent = clustered([(2, 3), (1, 3)] * 6)
    assert independent is not None
    assert independent.high - independent.low < a.high - a.low
    assert clustered([]) is clustered([(0, 0)]) is None


def test_student():
    assert [student95(freedom) for freedom in (6, 11, 39)] == pytest.approx([2.447, 2.201, 2.023], abs=0.004)
    assert student95(10**9) == pytest.approx(1.95996, abs=1e-5)
    assert math.isinf(student95(0))


@pytest.mark.parametrize(("tasks", "episodes", "a", "b"), [(5, 3, 1, 1), (12, 5, 0.3, 0.3), (40, 3, 0.5, 1)])
def test_the_interval_holds_what_it_promises(tasks: int, episodes: int, a: float, b: float):
    """Tasks of different difficulty, drawn many times: the true mean lies inside in 95 of 100 cases, or nearly."""
    rng = Random(1)
    inside = naive = 0
    for _ in range(600):
        chances = [rng.betavariate(a, b) for _ in range(tasks)]
        groups = [(sum(rng.random() < chance for _ in range(episodes)), episodes) for chance in chances]
        found, as_if = clustered(groups), wilson(sum(total for total, _ in groups), tasks * episodes)
        assert found is not None
        assert as_if is not None
        inside += found.low <= a / (a + b) <= found.high
        naive += as_if.low <= a / (a + b) <= as_if.high
    assert inside / 600 > 0.93
    assert naive / 600 < 0.92, "as if episodes were tasks"
