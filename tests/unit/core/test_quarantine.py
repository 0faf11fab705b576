"""A host that must prove itself."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from evalfleet.core.hosts.quarantine import Quarantine, Terms

TERMS = Terms(pause_s=60.0, canaries=3)


def test_a_blamed_host_pauses_twice_as_long_each_time_and_is_barred_in_the_end():
    one, now = Quarantine.of_blamed("5 tasks failed there", 1000.0, TERMS), 1000.0
    for pause_s in (60.0, 120.0, 240.0):
        assert not one.is_due(now + pause_s - 1)
        assert one.is_due(now + pause_s)
        now += 10_000.0
        one = one.started("c", 1e9).refuted("exit status 1", now)
    assert one.is_barred
    assert (one.due_at, one.canary, one.reason) == (None, None, "exit status 1")
    assert not one.is_due(1e12)


def test_a_new_host_is_asked_at_once_and_pauses_only_when_it_fails():
    one = Quarantine.of_new(1000.0, TERMS)
    assert one.is_due(1000.0)
    assert one.started("c", 1100.0).refuted("no", 1010.0).due_at == 1070.0


def test_a_person_who_acted_need_not_wait():
    assert Quarantine.of_blamed("it failed", 1000.0, TERMS, at_once=True).is_due(1000.0)


def test_a_canary_that_says_nothing_costs_nothing():
    one = Quarantine.of_blamed("it failed", 0.0, TERMS).started("c", 100.0)
    again = one.forgotten(90.0)
    assert (again.failed, again.canary) == (0, None)
    assert again.is_due(90.0)


@given(answers=st.lists(st.booleans(), max_size=10))
def test_it_never_asks_more_often_than_its_terms_allow(answers: list[bool]):
    one, now, asked = Quarantine.of_blamed("it failed", 0.0, TERMS), 0.0, 0
    for counts in answers:
        if one.due_at is None:
            break
        now = max(now, one.due_at)
        one, asked = one.started("c", now + 1), asked + counts
        one = one.refuted("no", now) if counts else one.forgotten(now)
    assert one.failed == asked <= TERMS.canaries
    assert one.is_barred == (one.due_at is None)
