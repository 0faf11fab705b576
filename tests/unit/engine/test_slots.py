"""Runs on hosts that count their slots over all runs, homes and users."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest
from tests.support.engine_play import Play, end_all, host, opened, played

from evalfleet.errors import RunnerUnavailable
from evalfleet.hosts.base import SlotReport
from evalfleet.hosts.protocol.link import RunnerLink
from evalfleet.hosts.remote.bulk_link import BulkLink
from evalfleet.report.live import live_state

pytestmark = pytest.mark.anyio


def wants(box_: object, play: Play) -> int | None:
    return box_.wanted.get(play.run.id)  # pyright: ignore[reportAttributeAccessIssue]


async def test_nothing_is_claimed_before_a_slot_is_kept(tmp_path: Path):
    box = host("box", slots=2)
    box.grant(SlotReport(others=2, by=("run z",)))
    async with played(Play(tmp_path, 3, box)) as play:
        await play.until(lambda: wants(box, play) == 2, "what it could use")
        assert play.attempts() == []
        await play.until(lambda: "worker.awaited" in dict(play.types()), "word that it waits")
        with opened(tmp_path) as reader:
            assert live_state(reader, play.run).waits == "box: 2 in use by run z"
        box.grant(SlotReport(free=1))
        await play.launched(box)
        await play.until(lambda: "worker.granted" in dict(play.types()), "word that it does not wait any more")
        with opened(tmp_path) as reader:
            assert live_state(reader, play.run).waits is None
        assert len(play.attempts()) == 1, "one was kept; the launch took it, whatever the host has said since"
        box.grant(SlotReport(free=1, live=frozenset(box.launched)))
        await play.launched(box, 2)
        end_all(box)
        box.grant(SlotReport(free=1))
        await play.launched(box, 3)
        end_all(box)
        await play.finish()
    play.assert_all_ok()


async def test_trouble_with_the_slots_is_told_once_also_to_who_waits_already(tmp_path: Path):
    box = host("box", slots=2)
    box.grant(SlotReport(others=1, by=("run z",)))

    def told(play: Play) -> list[str]:
        with opened(tmp_path) as reader:
            return [
                str(each.data["reason"]) for each in reader.events.workers(play.run.id) if each.type == "worker.awaited"
            ]

    async with played(Play(tmp_path, 1, box)) as play:
        await play.until(lambda: told(play) == ["box: 1 in use by run z"], "word that it waits")
        for room in (
            SlotReport(others=1, by=("run z",), trouble="2.lock is broken"),
            SlotReport(trouble="2.lock is broken"),
        ):
            box.grant(room)
            await play.until(lambda: len(told(play)) == 2, "word of the trouble")
        assert told(play)[1] == "box: 1 in use by run z, 2.lock is broken"
        box.grant(SlotReport(free=1))
        await play.finish()
        assert len(told(play)) == 2


async def test_an_attempt_that_nobody_expects_has_its_slot(tmp_path: Path):
    """One that was given up and came back: the run asks for what it could use besides."""
    box = host("box", slots=3)
    box.grant(SlotReport(live=frozenset({"x.9.9"})))
    async with played(Play(tmp_path, 1, box)) as play:
        await play.until(lambda: wants(box, play) == 2, "its own and one more")
        box.grant(SlotReport(free=1, live=frozenset({"x.9.9"})))
        await play.finish()
    play.assert_all_ok()


async def test_a_task_that_falls_due_later_asks_for_its_slot_then(tmp_path: Path):
    box = host("box")
    box.grant(SlotReport(free=1))
    async with played(Play(tmp_path, 1, box, retry_base_s=0.2)) as play:
        await play.launched(box)
        box.grant(SlotReport())
        box.end(box.launched[0], cause="runner_lost", message="it died")
        await play.until(lambda: wants(box, play) == 0, "nothing to start now")
        await play.until(lambda: wants(box, play) == 1, "the second attempt")
        box.grant(SlotReport(free=1))
        await play.finish()
    play.assert_all_ok()


async def test_who_waits_for_files_does_not_wait_for_a_closed_connection():
    class Opening:
        async def __aenter__(self) -> RunnerLink:
            await anyio.sleep_forever()
            raise AssertionError

        async def __aexit__(self, *_: object) -> None:
            pass

    bulk = BulkLink(Opening)  # pyright: ignore[reportArgumentType]
    with anyio.fail_after(30):
        async with anyio.create_task_group() as waiting:

            async def wait() -> None:
                with pytest.raises(RunnerUnavailable, match="closed"):
                    await bulk.link()

            async with anyio.create_task_group() as serving:
                serving.start_soon(bulk.serve)
                waiting.start_soon(wait)
                await anyio.wait_all_tasks_blocked()
                serving.cancel_scope.cancel()
