"""Users share the slots of a machine by the rule: real controllers that know of each other by the store alone, real tasks."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.share_play import Work, parts, play, told

from evalfleet.core.shares.quota import ShareRule, Subject

pytestmark = pytest.mark.long


def test_two_users_share_eight_slots_fairly_over_200_tasks(tmp_path: Path) -> None:
    alice, bob = play(tmp_path, 8, Work("alice", 100), Work("bob", 100))
    assert parts(alice, bob)[0] == pytest.approx(0.5, abs=0.05), told(alice, bob)
    assert any("your share is 4 of 8 slots" in reason for reason in [*alice.waits, *bob.waits]), told(alice, bob)


def test_weights_decide_who_has_how_many_slots(tmp_path: Path) -> None:
    rule = ShareRule(subject=Subject.USER, name="bob", weight=3.0)
    alice, bob = play(tmp_path, 8, Work("alice", 40), Work("bob", 120), rules=(rule,))
    assert parts(alice, bob)[1] == pytest.approx(0.75, abs=0.05), told(alice, bob)


def test_short_tasks_and_many_runs_get_no_more_than_long_tasks_of_one_run(tmp_path: Path) -> None:
    played = play(tmp_path, 8, Work("alice", 16, 2.0), Work("bob", 60, 0.3), Work("bob", 60, 0.3))
    assert parts(*played)[0] == pytest.approx(0.5, abs=0.07), told(*played)


def test_a_priority_goes_before_own_runs_and_not_before_others(tmp_path: Path) -> None:
    high, low, bob = play(tmp_path, 8, Work("alice", 40, priority=1), Work("alice", 40), Work("bob", 80))
    mine, theirs, others = parts(high, low, bob, first=(high, bob))
    assert others == pytest.approx(0.5, abs=0.07), told(high, low, bob)
    assert mine > 5 * theirs, told(high, low, bob)
