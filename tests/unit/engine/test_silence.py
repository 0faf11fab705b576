"""A host that does not answer is named, and given up in time."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import anyio
import pytest
from msgspec.structs import replace
from tests.support.engine_play import PATIENT, QUICK, Play, end_all, host, played
from tests.support.fake_fleet import FakeFleet

from evalfleet.core.hosts.health import OtherWay
from evalfleet.model import Kind, Outcome

pytestmark = pytest.mark.anyio


class _TieredFleet(FakeFleet):
    """Implements `FollowsHealth`: keeps what it was told last."""

    told: Mapping[str, str | None] = {}

    def absent(self, hosts: Mapping[str, str | None]) -> None:
        self.told = dict(hosts)

    def ended(self, host: str, fault: str | None) -> None:
        pass

    def expects_hosts(self) -> bool:
        return False

    def moves(self) -> int:
        return 0


async def test_a_host_that_is_silent_on_an_open_connection_is_told_to_its_tier_with_the_reason(home: Path):
    """Long before it is given up: else work waits for a tier that does not serve."""
    a, b = host("a"), host("b")
    play = Play(home, 2, a, b)
    play.fleet = fleet = _TieredFleet(a, b)
    async with played(play, PATIENT):
        await play.launched(a)
        await play.launched(b)
        b.silent = True
        await play.until(lambda: fleet.told.get("b") == "it does not answer on an open connection", "the reason")
        b.silent = False
        await play.until(lambda: "b" not in fleet.told, "its return")
        await play.finish()
    play.assert_all_ok()


@pytest.mark.parametrize("stands", [False, True])
async def test_a_host_is_given_up_in_time_though_no_connection_ever_fails(home: Path, stands: bool):
    """Neither a new connection nor the other way says no: packets vanish. Our own clock decides."""
    a, b = host("a"), host("b")
    play = Play(home, 2, a, b)
    async with played(play, QUICK):
        await play.launched(a)
        await play.launched(b)
        begun = anyio.current_time()
        b.hangs = True
        if stands:
            b.silent = True  # and the old connection still seems to stand
        else:
            b.cut()
        end_all(a)
        await play.launched(a, 2)  # the task of b
        assert anyio.current_time() - begun >= QUICK.patience.give_up_s
        end_all(a)
    lost = next(attempt for attempt in play.attempts() if attempt.host == "b")
    assert lost.failure is not None
    assert (lost.outcome, lost.failure.kind) == (Outcome.LOST, Kind.WORKER_LOST)
    assert b.resets == 0


async def test_a_runner_that_hangs_on_a_machine_that_answers_is_ended(home: Path):
    """The machine is not given up: its next runner tells what became of the attempts."""
    a, b = host("a"), host("b")
    play = Play(home, 2, a, b)
    async with played(play, QUICK):
        await play.launched(a)
        await play.launched(b)
        b.silent = True
        await play.until(lambda: b.resets, "the end of the runner")
        await play.finish()
    lost = next(attempt for attempt in play.attempts() if attempt.host == "b")
    assert lost.failure is not None
    assert lost.failure.kind is Kind.RUNNER_LOST
    play.assert_all_ok()


async def test_a_host_that_the_other_way_reaches_is_not_given_up_by_the_clock(home: Path):
    a, b = host("a"), host("b")
    b.other_way = OtherWay.ALIVE
    play = Play(home, 2, a, b)
    async with played(play, QUICK):
        await play.launched(a)
        await play.launched(b)
        b.unreachable = "connection refused"
        b.cut()
        await anyio.sleep(4 * QUICK.patience.give_up_s)  # what must not happen within it
        assert ("worker.lost", "b") not in play.types()
        b.unreachable = None
        await play.finish()


async def test_a_dead_host_is_named_with_the_reason_at_once_and_at_the_end(home: Path):
    a, dead = host("a"), host("dead")
    dead.unreachable = "host dead: 10.0.0.9:22: cannot be reached: Connection refused"
    play = Play(home, 2, a, dead)
    async with played(play, replace(PATIENT, reconnect_s=0.01)):
        await play.launched(a)
        reason = "10.0.0.9:22: cannot be reached: Connection refused"
        await play.until(
            lambda: any("host dead is not reached" in line for line in play.notices), "a line that says so"
        )
        await play.finish()
    assert f"host dead is not reached: {reason}. It gets no work meanwhile, and is tried again" in play.notices
    assert f"host dead was not reached at the end: {reason}" in play.notices
    (event,) = [event for event in play.events() if event.type == "worker.suspected"]
    assert event.data["reason"] == reason
    play.assert_all_ok()


async def test_a_line_that_breaks_and_is_mended_is_not_worth_a_word(home: Path):
    a = host("a")
    async with played(Play(home, 1, a)) as play:
        await play.launched(a)
        acquired = a.acquired
        a.cut()
        await play.until(lambda: a.acquired > acquired, "another connection")
        await play.finish()
    assert play.notices == []
