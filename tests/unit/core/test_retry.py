"""Again, failed, or held."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from evalfleet.core.failures.kinds import RULES, failure
from evalfleet.core.failures.retry import Fail, Hold, Retry, decide, delay_s
from evalfleet.model import Blame, Kind, Policy

POLICY = Policy(attempts=3, max_lost=5, retry_base_s=1.0, retry_cap_s=300.0)
RNG = random.Random(1)


def decided(kind: Kind, consumed: int = 0, lost: int = 0, blame: Blame | None = None):
    found = failure(kind, "why")
    if blame is not None:
        found = replace(found, blame=blame, consumes=blame is Blame.TASK)
    return decide(failure=found, consumed=consumed, lost=lost, policy=POLICY, now=1000.0, rng=RNG)


def test_a_failed_task_comes_again_until_its_attempts_are_used():
    assert isinstance(decided(Kind.BAD_EXIT, 1), Retry)
    assert isinstance(decided(Kind.BAD_EXIT, 2), Retry)
    last = decided(Kind.BAD_EXIT, 3)
    assert last == Fail(reason="3 of 3 attempts used; last: bad_exit: why")


def test_what_is_not_the_tasks_own_is_held():
    assert isinstance(decided(Kind.STALL, 3), Hold)
    assert isinstance(decided(Kind.STALL, 3, blame=Blame.TASK), Fail)
    assert isinstance(decided(Kind.CANCELLED, 0, 1), Hold)


@pytest.mark.parametrize("kind", [Kind.RUNNER_LOST, Kind.WORKER_LOST, Kind.PREEMPTED, Kind.BACKEND_ERROR])
def test_lost_attempts_are_capped(kind: Kind):
    assert isinstance(decided(kind, 2, 4), Retry)
    held = decided(kind, 2, 5)
    assert isinstance(held, Hold)
    assert "5 attempts lost" in held.reason


def test_a_pool_blamed_failure_does_not_fail_the_task():
    assert isinstance(decided(Kind.LAUNCH_FAILED, 2, 1, blame=Blame.POOL), Retry)
    assert isinstance(decided(Kind.LAUNCH_FAILED, 2, 5, blame=Blame.POOL), Hold)


@given(count=st.integers(0, 10_000), seed=st.integers())
def test_the_delay_is_jittered_and_capped(count: int, seed: int):
    full = min(300.0, 2.0 ** (max(count, 1) - 1)) if count < 500 else 300.0
    assert full / 2 <= delay_s(count, POLICY, random.Random(seed)) <= full


def test_a_service_that_failed_gets_more_time_from_attempt_to_attempt():
    def longest(kind: Kind, lost: int) -> float:
        waits = [decided(kind, 0, lost) for _ in range(50)]
        return max(wait.not_before - 1000.0 for wait in waits if isinstance(wait, Retry))

    assert longest(Kind.SERVICE_FAILED, 1) <= 1.0
    assert 32.0 < longest(Kind.SERVICE_FAILED, 4) <= 64.0
    assert longest(Kind.PREEMPTED, 4) <= 8.0


@given(
    attempts=st.integers(1, 8), max_lost=st.integers(1, 8), kinds=st.lists(st.sampled_from(Kind), min_size=1), seed=st.integers()
)  # fmt: skip
def test_it_always_ends(attempts: int, max_lost: int, kinds: list[Kind], seed: int):
    policy = Policy(attempts=attempts, max_lost=max_lost)
    rng, now, consumed, lost = random.Random(seed), 0.0, 0, 0
    for tries in range(1, attempts + max_lost + 2):
        found = failure(kinds[tries % len(kinds)], "x")
        consumed, lost = consumed + found.consumes, lost + (not found.consumes)
        decision = decide(failure=found, consumed=consumed, lost=lost, policy=policy, now=now, rng=rng)
        if not isinstance(decision, Retry):
            assert isinstance(decision, Fail) == (RULES[found.kind].blame is Blame.TASK)
            assert consumed <= attempts
            assert lost <= max_lost
            return
        assert decision.not_before > now
        now = decision.not_before
    raise AssertionError("it went on")
