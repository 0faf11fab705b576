"""Slow start, opening, probes."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from evalfleet.core.breaker import UNLIMITED, Breaker, Limits
from evalfleet.core.failures.kinds import failure
from evalfleet.model import Blame, BreakerState, Failure, Kind

LINE = "No such file or directory: 'agent'"


def own(line: str = LINE) -> Failure:
    return failure(Kind.LAUNCH_FAILED, line)


def pools(line: str = LINE) -> Failure:
    return replace(own(line), blame=Blame.POOL, consumes=False)


BACKEND = failure(Kind.BACKEND_ERROR, "no runner")


@pytest.fixture
def opened() -> Breaker:
    breaker = Breaker()
    for number, found in enumerate([own(), own(), pools(), pools(), pools()]):
        assert breaker.state is BreakerState.CLOSED
        breaker = breaker.failed(f"a{number}", found, f"t{number}", 100.0)
    return breaker


def test_slow_start_ends_with_a_verdict():
    breaker = Breaker()
    assert [breaker.allowance(0, n) for n in range(5)] == [3, 2, 1, 0, 0]
    assert breaker.succeeded("a").allowance(0, 500) == UNLIMITED
    assert breaker.failed("a", failure(Kind.BAD_EXIT, "x"), "t", 0).allowance(0, 0) == 3


def test_slow_start_ends_with_an_attempt_that_lives():
    breaker = Breaker()
    assert breaker.ran("a", 0, 59).allowance(59, 3) == 0
    assert breaker.ran("a", 0, 60).allowance(60, 3) == UNLIMITED


def test_earlier_failures_of_the_recognised_cause_count(opened: Breaker):
    assert opened.state is BreakerState.OPEN
    assert opened.cause is not None
    assert (opened.cause.failures, opened.cause.tasks) == (5, 5)
    assert str(opened.cause) == f"launch_failed: {LINE} (5 failures of 5 tasks)"


def test_it_needs_three_tasks():
    breaker = Breaker()
    for number in range(20):
        breaker = breaker.failed(f"a{number}", pools(), f"t{number % 2}", 0)
    assert breaker.state is BreakerState.CLOSED
    assert breaker.failed("a", pools(), "t9", 0).state is BreakerState.OPEN


def test_a_verdict_between_starts_the_count_anew():
    breaker = Breaker()
    for number in range(4):
        breaker = breaker.failed(f"a{number}", pools(), f"t{number}", 0)
    breaker = breaker.succeeded("b")
    for number in range(4):
        breaker = breaker.failed(f"c{number}", pools(), f"t{number}", 0)
    assert breaker.state is BreakerState.CLOSED


def test_failures_of_tasks_and_workers_never_open_it():
    breaker = Breaker()
    kinds = [Kind.BAD_EXIT, Kind.STALL, Kind.RUNNER_LOST, Kind.CANCELLED]
    for number in range(60):
        breaker = breaker.failed(f"a{number}", failure(kinds[number % 4], "x"), f"t{number}", 0)
    assert breaker.state is BreakerState.CLOSED
    assert breaker.cause is None


def test_three_failures_without_a_task_are_enough():
    breaker = Breaker()
    for _ in range(2):
        breaker = breaker.failed(None, BACKEND, None, 0)
    assert breaker.state is BreakerState.CLOSED
    breaker = breaker.failed(None, BACKEND, None, 0)
    assert breaker.state is BreakerState.OPEN
    assert str(breaker.cause) == "backend_error: no runner (3 failures)"


def test_three_spaced_probes_one_at_a_time(opened: Breaker):
    breaker, now, fresh = opened, 100.0, []
    for number, delay in enumerate([2, 4, 8]):
        assert breaker.next_probe_at == now + delay
        assert breaker.allowance(now + delay - 0.1, 0) == 0
        now += delay
        assert breaker.allowance(now, 7) == 1
        fresh.append(breaker.prefers_fresh)
        breaker = breaker.admitted(f"p{number}")
        assert breaker.state is BreakerState.HALF_OPEN
        assert breaker.allowance(now + 1000, 0) == 0
        assert not breaker.exhausted
        breaker = breaker.failed(f"p{number}", pools(), "t1", now)
    assert fresh == [True, False, True]
    assert breaker.exhausted
    assert breaker.next_probe_at is None
    assert breaker.allowance(1e9, 0) == 0
    assert breaker.succeeded("old").exhausted


def test_a_probe_with_a_verdict_closes_it(opened: Breaker):
    closed = opened.admitted("p").succeeded("p")
    assert (closed.state, closed.healthy, closed.marks) == (BreakerState.CLOSED, True, ())


def test_a_probe_that_fails_by_its_own_fault_closes_it_slowly(opened: Breaker):
    closed = opened.admitted("p").failed("p", failure(Kind.BAD_EXIT, "other"), "t", 102)
    assert (closed.state, closed.allowance(102, 0)) == (BreakerState.CLOSED, 3)


def test_a_probe_that_lives_closes_it_slowly(opened: Breaker):
    closed = opened.admitted("p").ran("p", 102, 162)
    assert (closed.state, closed.allowance(162, 1)) == (BreakerState.CLOSED, 2)
    assert opened.admitted("p").ran("old", 0, 162).state is BreakerState.HALF_OPEN


@pytest.mark.parametrize("found", [failure(Kind.STALL, "x"), failure(Kind.WORKER_LOST, "x"), BACKEND])
def test_a_probe_that_shows_no_health_has_failed(opened: Breaker, found: Failure):
    assert opened.admitted("p").failed("p", found, "t", 102).probes == 1


def test_others_decide_nothing_while_it_is_open(opened: Breaker):
    for breaker in (opened, opened.admitted("p")):
        assert breaker.succeeded("old").state is breaker.state
        after = breaker.failed("old", pools(), "t9", 103)
        assert (after.state, after.probes, after.next_probe_at) == (breaker.state, 0, breaker.next_probe_at)


def test_a_cancelled_probe_is_made_again(opened: Breaker):
    for again in (
        opened.admitted("p").forgotten("p", 110),
        opened.admitted("p").failed("p", failure(Kind.CANCELLED, ""), "t", 110),
    ):
        assert (again.state, again.probes, again.next_probe_at) == (BreakerState.OPEN, 0, 112)


def test_rearming(opened: Breaker):
    exhausted = replace(opened, probes=3, next_probe_at=None)
    assert exhausted.exhausted
    again = exhausted.rearmed(500)
    assert (again.exhausted, again.allowance(500, 0), again.cause) == (False, 1, opened.cause)
    assert Breaker(healthy=True).rearmed(0).allowance(0, 0) == 3


def test_endless_probes_for_servers(opened: Breaker):
    breaker = replace(opened, limits=Limits(probes=None))
    for number in range(100):
        breaker = breaker.admitted(f"p{number}").failed(f"p{number}", pools(), "t", 0)
    assert not breaker.exhausted
    assert breaker.next_probe_at == 300


def test_it_can_be_stored(opened: Breaker):
    for breaker in (Breaker(), opened, opened.admitted("p"), Breaker().succeeded("a")):
        assert Breaker.from_json(json.loads(json.dumps(breaker.to_json()))) == breaker


REFUSED = failure(Kind.SERVICE_REFUSED, "openai.AuthenticationError: Error code: 401 - no such key")


def test_a_refusal_opens_it_soon_and_is_not_probed_until_somebody_rearms_it():
    breaker = Breaker()
    for number in range(3):
        assert breaker.state is BreakerState.CLOSED
        breaker = breaker.failed(f"a{number}", REFUSED, "t", 10.0)  # one task is enough where nothing was healthy yet
    assert (breaker.state, breaker.exhausted, breaker.next_probe_at) == (BreakerState.OPEN, True, None)
    assert breaker.allowance(1e9, 0) == 0
    rearmed = breaker.rearmed(20.0)
    assert (rearmed.exhausted, rearmed.allowance(20.0, 0)) == (False, 1)
    again = rearmed.admitted("p").failed("p", REFUSED, "t", 21.0)
    assert (again.state, again.exhausted) == (BreakerState.OPEN, False)
    assert rearmed.admitted("p").succeeded("p").state is BreakerState.CLOSED


def test_one_task_that_is_refused_does_not_stop_a_run_that_works():
    breaker = Breaker().succeeded("a")
    for number in range(20):
        breaker = breaker.failed(f"a{number}", REFUSED, "t", 0)
    assert breaker.state is BreakerState.CLOSED
    assert breaker.failed("b", REFUSED, "t2", 0).state is BreakerState.OPEN


def test_a_server_that_probes_for_ever_probes_a_refusal_too():
    breaker = Breaker(limits=Limits(probes=None))
    for number in range(3):
        breaker = breaker.failed(f"a{number}", REFUSED, f"t{number}", 10.0)
    assert (breaker.exhausted, breaker.next_probe_at) == (False, 12.0)
