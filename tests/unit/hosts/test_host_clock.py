"""How a host's moments become ours, and how a runner's clock stays steady."""

from __future__ import annotations

from pathlib import Path

import pytest

from evalfleet.hosts.protocol.host_clock import HostClock
from evalfleet.runner import clock as runner_clock
from evalfleet.runner.clock import steady
from evalfleet.runner.spool.spool import Spool


def translated(clock: HostClock, **event: object) -> dict[str, object]:
    clock.translate(event)
    return event


def test_a_wrong_clock_is_corrected_in_every_moment() -> None:
    clock = HostClock()
    clock.learn(1600.0, 999.9, 1000.1)
    event = translated(clock, at=1700.0, started_at=1650.5, ready_at=None, ended_at=1700, step=1600.0)
    assert event == {"at": 1100.0, "started_at": 1050.5, "ready_at": None, "ended_at": 1100.0, "step": 1600.0}


def test_a_clock_that_agrees_as_far_as_can_be_seen_is_left_alone() -> None:
    clock = HostClock()
    clock.learn(1000.4, 999.0, 1001.0)
    assert translated(clock, at=1234.5) == {"at": 1234.5}


def test_nothing_is_changed_before_the_host_was_asked() -> None:
    assert translated(HostClock(), at=1.0) == {"at": 1.0}


def test_a_slow_answer_says_less_than_a_quick_one_and_later_ones_count() -> None:
    clock = HostClock()
    clock.learn(1600.0, 990.0, 1000.0)  # a runner that is just starting
    assert translated(clock, at=1600.0) == {"at": 995.0}
    clock.learn(1600.0, 1000.0, 1000.0)
    assert translated(clock, at=1600.0) == {"at": 1000.0}
    clock.learn(1600.0, 900.0, 1000.0)
    assert translated(clock, at=1600.0) == {"at": 1000.0}
    clock.learn(1700.0, 1000.0, 1000.02)  # the host was given another clock
    assert translated(clock, at=1700.0) == {"at": 1000.01}


def test_an_answer_before_its_question_is_no_evidence() -> None:
    clock = HostClock()
    clock.learn(1600.0, 1000.0, 999.0)
    assert translated(clock, at=5.0) == {"at": 5.0}


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    return Spool(str(tmp_path))


def test_all_runners_until_the_next_boot_share_a_clock(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    boot, since_s = "first", 100.0
    monkeypatch.setattr(runner_clock.process_tree, "boot_id", lambda: boot)
    monkeypatch.setattr(runner_clock.process_tree, "boottime_ns", lambda: int(since_s * 1e9))
    now = steady(spool, lambda: 5000.0)
    assert now() == 5000.0
    since_s = 160.0
    assert now() == 5060.0, "it goes on as the time since boot does"
    assert steady(spool, lambda: 9999.0)() == 5060.0, "the next runner does not look at the wall clock again"
    boot, since_s = "second", 3.0
    assert steady(spool, lambda: 9999.0)() == 9999.0


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"boot_id": 1, "booted": null}', "null"])
def test_a_spoiled_file_is_written_anew(spool: Spool, content: str) -> None:
    Path(spool.path("clock.json")).write_text(content)
    assert steady(spool, lambda: 7000.0)() == pytest.approx(7000.0, abs=1.0)
    assert steady(spool, lambda: 1.0)() == pytest.approx(7000.0, abs=1.0)
