"""Scores, intervals, times; health; the tables of states."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalfleet.core.statistics.scores import Interval, eta, percentile, retry_bias, scores, wilson


def test_both_scores():
    """2 passed, 1 got half, 1 failed by its own fault; held, cancelled, queued and running are left out of valid."""
    found = scores(total=8, verdicts=3, score_sum=2.5, failed=1)
    assert found.strict == pytest.approx(2.5 / 8)
    assert found.valid == pytest.approx(2.5 / 4)
    assert found.coverage == 0.5
    assert found.verdicts == 3
    assert found.ci95_valid is not None
    assert found.ci95_valid.low < 2.5 / 4 < found.ci95_valid.high


def test_crashing_on_hard_tasks_pays_nothing():
    honest = scores(total=10, verdicts=10, score_sum=5, failed=0)
    crashing = scores(total=10, verdicts=5, score_sum=5, failed=5)
    assert honest.valid == crashing.valid
    assert crashing.coverage == 1.0


def test_scores_of_nothing():
    empty = scores(total=0, verdicts=0, score_sum=0, failed=0)
    assert (empty.strict, empty.valid, empty.coverage, empty.ci95_strict) == (None, None, 0.0, None)
    held = scores(total=1, verdicts=0, score_sum=0, failed=0)
    assert (held.strict, held.valid, held.coverage, held.ci95_valid) == (0.0, None, 0.0, None)


def test_wilson_against_known_values():
    ten = wilson(5, 10)
    assert ten is not None
    assert (round(ten.low, 4), round(ten.high, 4)) == (0.2366, 0.7634)
    none = wilson(0, 10)
    assert none is not None
    assert (none.low, round(none.high, 4)) == (0.0, 0.2775)
    assert wilson(0, 0) is None


@given(count=st.integers(1, 10_000), share=st.floats(0, 1))
def test_wilson_holds_the_share(count: int, share: float):
    found = wilson(share * count, count)
    assert found is not None
    assert 0 <= found.low <= share + 1e-9
    assert share - 1e-9 <= found.high <= 1


def test_retry_bias():
    bias = retry_bias([(1, 1.0), (1, 0.0), (2, 1.0), (3, 1.0)])
    assert (bias.first, bias.first_score, bias.later, bias.later_score, bias.difference) == (2, 0.5, 2, 1.0, 0.5)
    assert retry_bias([(1, 1.0)]).difference is None


def test_percentile():
    assert percentile([3, 1, 2], 0.5) == 2
    assert percentile([1, 2], 0.5) == 1.5
    assert percentile([7], 0.99) == 7
    assert percentile([1, 2, 3], 5) == 3
    with pytest.raises(ValueError, match="no values"):
        percentile([], 0.5)


def test_eta():
    assert eta([], waiting=5, elapsed=[], workers=2) is None
    assert eta([1.0], waiting=0, elapsed=[], workers=2) == Interval(low=0.0, high=0.0)
    assert eta([1.0], waiting=1, elapsed=[], workers=0) is None
    steady = eta([10.0] * 20, waiting=100, elapsed=[5.0] * 10, workers=10)
    assert steady == Interval(low=105.0, high=115.0)
    wild = eta([1.0, 100.0] * 4, waiting=10, elapsed=[500.0], workers=5)
    assert wild is not None
    assert 0 <= wild.low < wild.high


def test_eta_of_mixed_durations_is_not_led_by_the_short_ones_that_end_first():
    short = eta([1.0] * 10, waiting=10, elapsed=[30.0, 40.0], workers=4)
    assert short is not None
    assert short.high >= 40, "what has outlasted all may take as long again"
    known = eta([1.0] * 8 + [100.0, 100.0], waiting=0, elapsed=[60.0], workers=4)
    assert known is not None
    assert known.low == pytest.approx(40.0), "those that took longer than 60 s took 100"
