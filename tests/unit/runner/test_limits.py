"""The clocks of an attempt, without waiting."""

from __future__ import annotations

import pytest

from evalfleet.runner.attempt.limits import NEVER, AttemptLimits
from evalfleet.runner.attempt.spec import AttemptSpec


def limits(**fields: float | None) -> AttemptLimits:
    return AttemptLimits(AttemptSpec({"command": ["x"], "timeout_s": 100.0, **fields}), 0.0)


def test_nothing_is_due_early() -> None:
    clock = limits()
    assert clock.broken(99.9) is None
    assert clock.next_at() == 100.0


@pytest.mark.parametrize(
    ("stall_s", "progressed_at", "cause"),
    [
        (None, 0.0, "stall"),
        (None, 49.0, "stall"),
        (None, 51.0, "timeout"),
        (30.0, 71.0, "timeout"),
        (80.0, 49.0, "stall"),
        (80.0, 51.0, "timeout"),
    ],
)
def test_cause_at_the_wall_limit(stall_s: float | None, progressed_at: float, cause: str) -> None:
    clock = limits(stall_s=stall_s)
    clock.progress(progressed_at)
    assert clock.broken(100.0) == cause


def test_stall_limit() -> None:
    clock = limits(stall_s=10.0)
    clock.progress(5.0)
    assert clock.next_at() == 15.0
    assert clock.broken(14.9) is None
    assert clock.broken(15.0) == "stall"


def test_start_limit_precedes_the_clocks() -> None:
    clock = limits(start_timeout_s=300.0, stall_s=10.0)
    assert clock.broken(299.0) is None
    assert clock.broken(300.0) == "start_timeout"
    clock.ready(200.0)
    assert clock.broken(209.0) is None
    assert clock.broken(210.0) == "stall"


def test_ready_starts_the_clocks_anew() -> None:
    clock = limits()
    clock.ready(50.0)
    assert clock.broken(149.0) is None
    assert clock.next_at() == 150.0 < NEVER


def test_a_cost_limit_counts_time_and_reports() -> None:
    clock = limits(max_cost_usd=10.0, price_usd_per_hour=3600.0, grace_s=1.0)
    assert clock.next_at() == 9.0, "ending it may take a second, which costs a dollar"
    clock.reported(4.0)
    assert clock.next_at() == 5.0
    assert clock.broken(4.9) is None
    assert clock.broken(5.0) == "cost_limit"


def test_what_it_may_cost_it_may_cost() -> None:
    clock = limits(max_cost_usd=0.3)
    clock.reported(0.1 + 0.2)
    assert clock.broken(99.0) is None
    clock.reported(0.31)
    assert clock.broken(0.1) == "cost_limit"
    assert limits().broken(99.0) is None


def test_a_cost_limit_holds_before_the_start() -> None:
    clock = limits(max_cost_usd=10.0, price_usd_per_hour=3600.0, grace_s=0.5, start_timeout_s=60.0)
    assert clock.broken(9.5) == "cost_limit"
