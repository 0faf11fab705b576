"""The statistics of two runs: exact where they claim to be, calm where nothing differs, and the same from both sides."""

from __future__ import annotations

import math
from itertools import product
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalfleet.core.statistics.comparison import Conclusion, Pair, bootstrap, compare, exact_p, least_detectable


def pair(a: float, b: float, key: str = "k") -> Pair:
    return Pair(key=key, domain="d", score_a=a, score_b=b, success_a=a >= 1, success_b=b >= 1)


def flips(count: int, gained: int, lost: int) -> list[Pair]:
    rest = [pair(i % 2, i % 2) for i in range(count - gained - lost)]
    return [pair(0, 1)] * gained + [pair(1, 0)] * lost + rest


scores = st.one_of(st.sampled_from([0.0, 1.0]), st.floats(0, 1))
pairings = st.lists(st.builds(pair, scores, scores), min_size=1, max_size=40)


@given(pairings)
@settings(max_examples=60)
def test_swapping_the_runs_swaps_the_signs(pairs: list[Pair]):
    there = compare(pairs, Random(1))
    back = compare([pair(one.score_b, one.score_a) for one in pairs], Random(1))
    assert back.difference == -there.difference
    assert (back.higher, back.lower, back.gained, back.lost) == (there.lower, there.higher, there.lost, there.gained)
    assert (back.p_score, back.p_success, back.least) == (there.p_score, there.p_success, there.least)
    assert (back.ci95.low, back.ci95.high) == pytest.approx((-there.ci95.high, -there.ci95.low), abs=1e-9)
    swapped = {Conclusion.BETTER: Conclusion.WORSE, Conclusion.WORSE: Conclusion.BETTER}
    assert back.conclusion is swapped.get(there.conclusion, there.conclusion)


@given(st.lists(scores, min_size=1, max_size=40))
@settings(max_examples=30)
def test_identical_runs_do_not_differ(values: list[float]):
    same = compare([pair(value, value) for value in values], Random(1))
    assert (same.difference, same.ci95.low, same.ci95.high, same.p_score, same.p_success) == (0, 0, 0, 1, 1)
    assert same.conclusion is Conclusion.UNCLEAR
    assert same.least.assumed


@given(pairings)
@settings(max_examples=60)
def test_what_is_told_fits_together(pairs: list[Pair]):
    found = compare(pairs, Random(1))
    differences = [one.difference for one in pairs]
    assert found.difference == pytest.approx(found.mean_b - found.mean_a, abs=1e-9)
    assert min(differences) - 1e-9 <= found.ci95.low <= found.ci95.high <= max(differences) + 1e-9
    if found.conclusion is Conclusion.BETTER:
        assert found.difference > 0
        assert found.higher - found.lower >= 6


def test_no_pairs_is_an_error():
    with pytest.raises(ValueError, match="no pairs"):
        compare([], Random(1))


@pytest.mark.parametrize("count", range(11))
def test_exact_test_is_what_all_throws_of_coins_give(count: int):
    throws = [sum(throw) for throw in product((0, 1), repeat=count)]
    for ups in range(count + 1):
        uneven = sum(abs(2 * throw - count) >= abs(2 * ups - count) for throw in throws)
        assert exact_p(ups, count - ups) == pytest.approx(uneven / len(throws), rel=1e-12)


def test_exact_test_of_many():
    assert exact_p(12, 3) == 0.03515625
    assert exact_p(5000, 5000) == 1.0
    assert 0 < exact_p(5200, 4800) < 0.0001
    assert exact_p(10_000, 0) == 0.0  # below the smallest float


def test_a_clear_case_and_an_unclear_one():
    assert compare(flips(154, 12, 3), Random(0)).conclusion is Conclusion.BETTER
    assert compare(flips(154, 3, 12), Random(0)).conclusion is Conclusion.WORSE
    assert compare(flips(154, 7, 5), Random(0)).conclusion is Conclusion.UNCLEAR


def test_few_changes_never_suffice():
    """The interval alone would call it: no task went down."""
    found = compare(flips(10, 5, 0), Random(0))
    assert found.ci95.low > 0
    assert found.conclusion is Conclusion.UNCLEAR


def test_many_small_steps_up_do_not_outweigh_large_ones_down():
    pairs = [pair(0.5, 0.51)] * 15 + [pair(1, 0)] * 5
    found = compare(pairs, Random(0))
    assert found.p_score < 0.05
    assert found.difference < 0
    assert found.conclusion is Conclusion.UNCLEAR


def test_the_last_digit_of_a_float_is_no_change():
    assert pair(0.3, 0.1 + 0.2).difference == 0
    assert compare([pair(0, 0.1), pair(0, 0.2), pair(0.3, 0)], Random(0)).difference == 0


def test_bootstrap_is_that_of_drawing_every_task():
    """Drawing only the tasks that differ gives the same distribution."""
    differences = [pair.difference for pair in flips(200, 30, 10)]
    rng = Random(5)
    plain = sorted(sum(rng.choices(differences, k=200)) / 200 for _ in range(2000))
    found = bootstrap(differences, Random(6))
    assert (found.low, found.high) == pytest.approx((plain[50], plain[1949]), abs=0.011)


def test_bootstrap_of_much_is_the_normal_interval():
    rng = Random(3)
    differences = [rng.uniform(-1, 1) + 0.1 for _ in range(3000)]
    mean = math.fsum(differences) / 3000
    half = 1.96 * math.sqrt(math.fsum((one - mean) ** 2 for one in differences)) / 3000
    found = bootstrap(differences, Random(4))
    assert (found.low, found.high) == pytest.approx((mean - half, mean + half), abs=half / 10)


def simulated(rng: Random, tasks: int, up: float, down: float) -> list[Pair]:
    throws = [rng.random() for _ in range(tasks)]
    return [pair(0, 1) if throw < up else pair(1, 0) if throw < up + down else pair(0, 0) for throw in throws]


def test_equal_agents_are_seldom_called_different():
    rng = Random(11)
    called = [compare(simulated(rng, 60, 0.1, 0.1), rng).conclusion is not Conclusion.UNCLEAR for _ in range(300)]
    assert sum(called) <= 15


def test_least_detectable_difference_is_found_in_four_of_five_cases():
    wanted = least_detectable(300, 0.2)
    assert wanted is not None
    rng = Random(12)
    found = 0
    for _ in range(400):
        pairs = simulated(rng, 300, 0.1 + wanted / 2, 0.1 - wanted / 2)
        found += exact_p(sum(one.flip > 0 for one in pairs), sum(one.flip < 0 for one in pairs)) < 0.05
    assert 0.7 < found / 400 < 0.86


@given(st.integers(6, 5000), st.floats(0.001, 1))
def test_more_pairs_see_more(pairs: int, discordance: float):
    here = least_detectable(pairs, discordance)
    more = least_detectable(pairs * 2, discordance)
    assert here is not None
    assert more is not None
    assert 0 < more < here <= 1


def test_too_few_pairs_see_nothing():
    assert least_detectable(5, 0.2) is None
