"""Plans: durations from history, the simulation against the real placement and breaker, the front and the choice."""

from __future__ import annotations

import heapq
import math
import random
import time
from itertools import pairwise
from statistics import fmean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.makespan import simulated

from evalfleet.core.plan.choice import Goal, Option, break_even_runs, choose, counts, fleets, front, options
from evalfleet.core.plan.durations import Durations, Job, Prior, Sample
from evalfleet.core.plan.fleet import (
    Fleet,
    Group,
    Offer,
    Reliability,
    Start,
    StartPrior,
    Starts,
    Tails,
    reliability,
    spread_over,
)
from evalfleet.core.plan.pace import Pace, pace_of
from evalfleet.core.plan.simulation import Draws, Forecast, Odds, Spread, Work, order_of, play

NO_TAILS = Tails(seconds=0.0)
CERTAIN = Prior(between_keys=0.0, between_attempts=0.0, between_runs=0.0, of_the_mean=0.0)
QUIET = Odds(failed_attempts=0.0, gap_s=0.0, tails=NO_TAILS, slow_start=10_000)
FIVE_MINUTES = Starts(prior=StartPrior(wait_s=0.0, prepare_s=300.0, deviation=0.0))
D8 = Offer(size="D8", region="eastus", vcpus=8, memory_mb=32768, usd_per_hour=0.452)
D4 = Offer(size="D4", region="eastus", vcpus=4, memory_mb=16384, usd_per_hour=0.172)


def fleet(offer: Offer, machines: int, evictions: float = 0.0) -> Fleet:
    rates = Reliability(evictions_per_hour=evictions)
    return Fleet(groups=(Group(offer=offer, machines=machines, reliability=rates),))


def work(tasks: int, *, prior: Prior = CERTAIN, odds: Odds = QUIET, starts: Starts = FIVE_MINUTES) -> Work:
    jobs = tuple(Job(key=f"k{number}", domain=f"d{number % 12}") for number in range(tasks))
    return Work(jobs=jobs, durations=Durations(jobs, (), prior), starts=starts, odds=odds)


@pytest.mark.parametrize(
    ("tasks", "workers", "minutes", "hours"),
    [
        (154, 10, 133, 154 * 8 / 60 + 10 * 5 / 60),
        (154, 1, 1237, 1237 / 60),
        (3, 10, 13, 3 * 8 / 60 + 10 * 5 / 60),
        (30, 5, 53, 53 * 5 / 60),
    ],
)
def test_without_chance_it_is_plain_arithmetic(tasks: int, workers: int, minutes: float, hours: float):
    found = Draws(work(tasks), 0).forecast(fleet(D8, workers), 3)
    assert found.seconds == Spread(mean=minutes * 60, low=minutes * 60, high=minutes * 60)
    assert found.machine_hours == pytest.approx(hours)
    assert found.usd.mean == pytest.approx(hours * 0.452)


def real_rules(seconds: list[float], order: list[int], workers: int) -> float:
    """The same run by the rules of the engine: when the last task ends, from the first machine's start."""
    return simulated([job + 1 for job in reversed(order)], dict(enumerate(seconds, 1)), workers)


@settings(max_examples=60, deadline=None)
@given(
    seconds=st.lists(st.floats(1.0, 1000.0), min_size=1, max_size=40),
    workers=st.integers(1, 12),
)
def test_a_run_ends_when_the_real_rules_end_it(seconds: list[float], workers: int):
    jobs = tuple(Job(key=str(number)) for number in range(len(seconds)))
    samples = [Sample(key=str(n), domain="", run="r", seconds=one) for n, one in enumerate(seconds)]
    durations = Durations(jobs, samples, CERTAIN)
    order = order_of(durations)
    at_once = Starts(prior=StartPrior(wait_s=0.0, prepare_s=0.0, deviation=0.0))
    odds = Odds(failed_attempts=0.0, gap_s=0.0, tails=NO_TAILS)
    planned = Work(jobs=jobs, durations=durations, starts=at_once, odds=odds)
    ended, _, _ = play(planned, [seconds[job] for job in order], order, fleet(D8, workers), random.Random(0))
    assert ended == pytest.approx(real_rules(seconds, order, workers))


def truth(rng: random.Random, usual: list[float], workers: int) -> float:
    """A run of another program: tasks with their own luck and a day's, machines that start at their own pace."""
    day = math.exp(rng.gauss(0.0, 0.05))
    seconds = [one * day * math.exp(rng.gauss(0.0, 0.3)) for one in usual]
    free = [rng.uniform(200.0, 400.0) for _ in range(workers)]
    heapq.heapify(free)
    end = 0.0
    for number in sorted(range(len(usual)), key=lambda one: -usual[one]):
        at = heapq.heappop(free) + seconds[number]
        if rng.random() < 0.05:
            at += seconds[number] * rng.random()
        end = max(end, at)
        heapq.heappush(free, at)
    return end


def test_intervals_hold_what_comes_from_other_seeds():
    """154 tasks, history of three runs: of 40 further runs about 90 % end inside the interval."""
    rng = random.Random(7)
    usual = [math.exp(rng.gauss(math.log(420.0), 0.5)) for _ in range(154)]
    jobs = tuple(Job(key=str(number), domain=str(number % 12)) for number in range(154))
    inside = 0
    for seed in range(40):
        past = random.Random(1000 + seed)
        samples = [
            Sample(key=str(n), domain=str(n % 12), run=f"r{run}", seconds=one * day * math.exp(past.gauss(0.0, 0.3)))
            for run in range(3)
            for day in [math.exp(past.gauss(0.0, 0.05))]
            for n, one in enumerate(usual)
        ]
        starts = Starts(samples=tuple(Start(wait_s=100.0, prepare_s=past.uniform(100.0, 300.0)) for _ in range(30)))
        durations = Durations(jobs, samples, Prior())
        assert durations.known == 154
        planned = Work(jobs=jobs, durations=durations, starts=starts, odds=Odds(gap_s=0.0))
        found = Draws(planned, seed).forecast(fleet(D8, 10), 100).seconds
        inside += found.low <= truth(random.Random(2000 + seed), usual, 10) <= found.high
    assert 32 <= inside <= 40


def test_few_runs_make_a_wide_interval_and_many_a_narrow_one():
    """Of what a further run is off by, 90 % must lie inside, however many runs there were to learn from."""
    rng = random.Random(3)
    widths: list[float] = []
    for runs in (2, 3, 10):
        inside = 0
        for _ in range(300):
            past = [rng.gauss(5.0, 0.5) for _ in range(runs)]
            pace = pace_of(past, 0.5)
            drawn = sorted(fmean(past) + pace.draw(rng) for _ in range(200))
            inside += drawn[10] <= rng.gauss(5.0, 0.5) <= drawn[-11]
        widths.append(pace_of([4.5, 5.5] * (runs // 2) + [5.0] * (runs % 2), 0.5).spread)
        assert 255 <= inside <= 288, (runs, inside)
    assert widths == sorted(widths, reverse=True)
    assert pace_of([], 0.2) == Pace(spread=0.2)
    assert Pace().draw(rng) == 0.0


def test_what_machines_cost_after_their_last_task_widens_the_cost_and_not_the_time():
    tails = Tails(seconds=600.0, factors=(0.5, 1.0, 2.0), between_runs=pace_of([6.0, 6.5, 5.5], 0.5))
    sure = Draws(work(30), 0).forecast(fleet(D8, 5), 200)
    unsure = Draws(work(30, odds=Odds(failed_attempts=0.0, gap_s=0.0, tails=tails, slow_start=10_000)), 0)
    found = unsure.forecast(fleet(D8, 5), 200)
    assert found.seconds == sure.seconds
    assert found.usd.low > sure.usd.high
    assert found.usd.high - found.usd.low > 5 * 600 * 0.452 / 3600


def test_keys_take_after_their_domain_and_order_the_queue():
    jobs = [Job(key="a", domain="x"), Job(key="b", domain="x"), Job(key="c", domain="y")]
    samples = [Sample(key="a", domain="x", run="r", seconds=100.0), Sample(key="z", domain="y", run="r", seconds=900.0)]
    durations = Durations(jobs, samples, Prior())
    assert durations.known == 1
    assert durations.expected == pytest.approx([100.0, 100.0, 900.0])
    assert order_of(durations) == [1, 0, 2]  # from the back: the longest first, then as in the file


def test_the_prior_keeps_the_mean_that_was_stated():
    durations = Durations([Job(key=str(n)) for n in range(2000)], (), Prior(seconds=480.0, of_the_mean=0.0))
    rng = random.Random(1)
    assert fmean(fmean(durations.draw(rng)) for _ in range(20)) == pytest.approx(480.0, rel=0.05)


def test_evictions_and_failures_cost_time_and_money():
    calm = Draws(work(154), 0).forecast(fleet(D8, 10), 50)
    windy = Draws(work(154), 0).forecast(fleet(D8, 10, 0.5), 50)
    failing = Draws(work(154, odds=Odds(failed_attempts=0.2, gap_s=0.0, tails=NO_TAILS)), 0).forecast(fleet(D8, 10), 50)
    for worse in (windy, failing):
        assert worse.seconds.mean > calm.seconds.mean
        assert worse.usd.mean > calm.usd.mean
    again = Draws(work(154), 0).forecast(fleet(D8, 10, 0.5), 50)
    assert again == windy  # a seed is a seed


def test_disk_image_egress_and_models_are_counted():
    odds = Odds(failed_attempts=0.0, gap_s=0.0, tails=NO_TAILS, slow_start=100, model_usd=0.1, egress_usd=0.02)
    dear = Offer(size="D8", region="r", usd_per_hour=0.4, kept_usd_per_hour=0.05, image_usd_per_hour=0.6)
    found = Draws(work(60, odds=odds), 0).forecast(fleet(dear, 8), 2)  # 5 + 8 x 8 minutes
    hours = found.machine_hours
    assert found.usd.mean == pytest.approx(hours * 0.45 + 0.6 * found.seconds.mean / 3600 + 60 * 0.12)


def test_large_tasks_wait_for_large_machines():
    jobs = (Job(key="a", memory_mb=30_000), Job(key="b", memory_mb=30_000), Job(key="c"), Job(key="d"))
    planned = Work(jobs=jobs, durations=Durations(jobs, (), CERTAIN), starts=FIVE_MINUTES, odds=QUIET)
    both = Fleet(groups=(Group(offer=D8, machines=1), Group(offer=D4, machines=1)))
    found = Draws(planned, 0).forecast(both, 1)
    assert found.seconds.mean == 300 + 2 * 480  # the small machine takes the small ones meanwhile
    rates = lambda _: Reliability()  # noqa: E731
    made = fleets([D8, D4], [4], [30_000, 0, 0, 0], rates)
    assert [[(group.offer.size, group.machines) for group in one.groups] for one in made] == [
        [("D8", 4)],
        [("D8", 1), ("D4", 3)],
    ]
    assert fleets([D4], [4], [30_000], rates) == []


def test_regions_are_filled_by_their_quota_from_the_cheapest_on():
    dear = Offer(size="D4", region="centralus", usd_per_hour=0.2, most=100)
    near = Offer(size="D4", region="eastus", usd_per_hour=0.172, most=12)
    assert spread_over([dear, near], 20) == ((near, 12), (dear, 8))
    assert spread_over([near], 20) is None
    assert counts(20, None) == [1, 2, 3, 5, 8, 10, 15, 20]
    assert counts(20, 7) == [7]


def option(seconds: float, usd: float) -> Option:
    made = Forecast(
        seconds=Spread(mean=seconds, low=seconds * 0.9, high=seconds * 1.1),
        usd=Spread(mean=usd, low=usd * 0.9, high=usd * 1.1),
        machine_hours=10.0,
    )
    return Option(fleet=fleet(D4, 1), forecast=made)


def test_the_front_and_the_choice():
    fast, middle, slow, beaten = option(1000, 9.0), option(2000, 5.0), option(4000, 4.0), option(2500, 6.0)
    found = front([slow, beaten, fast, middle])
    assert found == [fast, middle, slow]
    assert choose(found, Goal(deadline_s=2300)) == (middle, True)
    assert choose(found, Goal(deadline_s=2100)) == (fast, True)  # the middle one keeps it on average only
    assert choose(found, Goal(budget_usd=5.6)) == (middle, True)
    assert choose(found, Goal(budget_usd=5.2)) == (slow, True)
    assert choose(found, Goal(deadline_s=2300, budget_usd=5.6)) == (middle, True)
    assert choose(found, Goal(deadline_s=1050)) == (fast, False)
    assert choose(found, Goal(deadline_s=10)) == (fast, False)
    assert choose(found, Goal(budget_usd=1)) == (slow, False)
    assert choose(found, Goal()) == (middle, True)


@settings(max_examples=50)
@given(points=st.lists(st.tuples(st.floats(1, 1e5), st.floats(0.01, 1e3)), min_size=1, max_size=30))
def test_nothing_on_the_front_is_beaten(points: list[tuple[float, float]]):
    found = front(option(*point) for point in points)
    for one, other in pairwise(found):
        assert one.forecast.seconds.mean <= other.forecast.seconds.mean
        assert one.forecast.usd.mean > other.forecast.usd.mean
    assert found[0].forecast.seconds.mean == min(seconds for seconds, _ in points)


def test_rates_are_drawn_towards_what_is_assumed():
    prior = StartPrior()
    assert reliability(0, 0.0, 0, 0, spot=True, prior=prior).evictions_per_hour == prior.evictions_per_hour
    assert reliability(0, 0.0, 0, 0, spot=False, prior=prior).evictions_per_hour == 0.0
    assert reliability(100, 1000.0, 0, 500, spot=True, prior=prior).evictions_per_hour == pytest.approx(0.1, rel=0.05)


def test_reserved_machines_pay_only_for_much_work():
    found = Draws(work(154), 0).forecast(fleet(D4, 10), 1)
    runs = break_even_runs(10, found, 0.62)
    assert runs is not None
    assert runs * found.machine_hours == pytest.approx(0.62 * 730 * 10)
    assert break_even_runs(154, Draws(work(154), 0).forecast(fleet(D4, 154), 1), 0.62) is not None
    assert break_even_runs(300, Draws(work(154), 0).forecast(fleet(D4, 300), 1), 0.99) is None


def test_a_plan_of_154_tasks_takes_about_a_second():
    planned = work(154, prior=Prior(), odds=Odds())
    made = fleets([D8, D4], counts(154, None), [0] * 154, lambda _: Reliability(evictions_per_hour=0.05))
    taken = [timed(planned, made)]
    while len(taken) < 5 and min(taken) >= 3.0:  # of processor time: a busy machine must not decide it
        taken.append(timed(planned, made))
    assert min(taken) < 3.0


def timed(planned: Work, made: list[Fleet]) -> float:
    begun = time.process_time()
    options(Draws(planned, 0), made, 154)
    return time.process_time() - begun
