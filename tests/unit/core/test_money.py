"""Cost, budget, forecast."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalfleet.core.budget import UNLIMITED, Budget
from evalfleet.core.cost import Forecast, LiveCost, attempt_cost, committed, estimate_attempt, forecast


def test_the_cost_of_an_attempt():
    assert attempt_cost(2.0, 1800, 0.25) == pytest.approx(1.25)
    assert attempt_cost(2.0, -5, 0.0) == 0.0
    assert attempt_cost(0.0, 1e9, 0.5) == 0.5


def test_the_estimate_is_the_dearest_so_far():
    assert estimate_attempt(largest_usd=None, price_per_hour=3.0, timeout_s=1200) == pytest.approx(1.0)
    assert estimate_attempt(largest_usd=0.2, price_per_hour=3.0, timeout_s=1200) == 0.2
    assert estimate_attempt(largest_usd=None, price_per_hour=0.0, timeout_s=1200) == 0.0


def test_committed_is_at_least_what_is_spent_already():
    live = [LiveCost(price_per_hour=0, elapsed_s=9, reported_usd=0.1), LiveCost(price_per_hour=3.6, elapsed_s=1000)]
    assert committed(live, 0.5) == pytest.approx(1.5)
    assert committed([], 0.5) == 0.0


def test_the_budget_admits_up_to_its_limit():
    budget = Budget(limit_usd=1.0)
    assert budget.admits(0.5, 0.25, 0.25)
    assert not budget.admits(0.5, 0.25, 0.26)
    assert budget.room(0.0, 0.0, 0.1) == 10
    assert budget.room(2.0, 0.0, 0.1) == 0
    assert budget.room(2.0, 0.0, 0.0) == 0
    assert budget.room(0.0, 0.0, 0.0) == UNLIMITED
    assert Budget(limit_usd=None).admits(1e9, 1e9, 1e9)
    assert "$1.00" in budget.message(0.9, 0.0, 0.2)


@given(
    limit=st.floats(0, 20),
    workers=st.integers(1, 12),
    costs=st.lists(st.floats(0, 1), min_size=1, max_size=60),
)
def test_it_never_overshoots_when_costs_stay_within_the_estimate(limit: float, workers: int, costs: list[float]):
    """Attempts that cost at most the first estimate (price x timeout), admitted one by one, ended in order."""
    budget, estimate, spent = Budget(limit_usd=limit), 1.0, 0.0
    live: list[float] = []
    for cost in costs:
        while len(live) >= workers or (live and not budget.admits(spent, len(live) * estimate, estimate)):
            spent += live.pop(0)
        if not budget.admits(spent, len(live) * estimate, estimate):
            break
        live.append(cost)
    assert spent + sum(live) <= limit + 1e-6


def test_forecast():
    assert forecast(total_usd=2.0, decided=4, tasks=10, elapsed_s=1800) == Forecast(
        estimated_total_usd=5.0, cost_per_task_usd=0.5, hourly_rate_usd=4.0
    )
    nothing = forecast(total_usd=0.0, decided=0, tasks=10, elapsed_s=0)
    assert nothing == Forecast(estimated_total_usd=None, cost_per_task_usd=None, hourly_rate_usd=None)
