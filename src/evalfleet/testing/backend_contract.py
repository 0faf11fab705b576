"""What every backend must do. A backend's tests subclass `BackendContract` and give the fixture `backend`.

The programs `true`, `false` and `sleep` must be there. Tests are async and run with anyio's plugin.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from evalfleet.core.hosts.health import OtherWay
from evalfleet.errors import BackendError
from evalfleet.hosts.base import AttemptEvent, Backend, Host, Inbox, Launch
from evalfleet.model import JsonObject

_DEADLINE_S = 30.0


def launch(attempt_id: str, *command: str) -> Launch:
    spec: JsonObject = {
        "key": "a",
        "domain": "a",
        "number": 1,
        "command": list(command),
        "cwd": "/",
        "env": {"PATH": "/usr/bin:/bin"},
        "payload": None,
        "timeout_s": 60.0,
        "stall_s": None,
        "start_timeout_s": None,
        "progress": "output",
    }
    return Launch(attempt_id=attempt_id, spec=spec, secrets={}, valid_for_s=60.0)


class Watcher:
    """Takes events from an inbox until an attempt has ended."""

    def __init__(self, inbox: Inbox) -> None:
        self.seen: list[AttemptEvent] = []
        self._inbox = inbox

    def of(self, attempt_id: str, kind: str) -> list[AttemptEvent]:
        return [one for one in self.seen if one.attempt_id == attempt_id and one.type == kind]

    async def until(self, attempt_id: str, kind: str = "ended") -> AttemptEvent:
        with anyio.fail_after(_DEADLINE_S):
            while True:
                self.seen += self._inbox.take()
                if found := self.of(attempt_id, kind):
                    return found[0]
                await self._inbox.wait(1.0)


@pytest.mark.anyio
class BackendContract:
    """The promises of `hosts.base`, one test each."""

    @asynccontextmanager
    async def connected(
        self, backend: Backend, run: str = "run1", epoch: int = 1
    ) -> AsyncGenerator[tuple[Host, Watcher]]:
        inbox = Inbox()
        async with backend.acquire(run, epoch, inbox) as host:
            yield host, Watcher(inbox)

    async def test_an_attempt_starts_and_ends(self, backend: Backend) -> None:
        async with self.connected(backend) as (host, watcher):
            await host.launch([launch("run1.1.1", "true"), launch("run1.2.1", "false")])
            good, bad = await watcher.until("run1.1.1"), await watcher.until("run1.2.1")
            assert (good.data["cause"], good.data["exit_code"]) == ("exited", 0)
            assert (bad.data["cause"], bad.data["exit_code"]) == ("exited", 1)
            assert watcher.of("run1.1.1", "started")
            numbers = [one.number for one in watcher.seen if one.attempt_id == "run1.1.1"]
            assert numbers == sorted(set(numbers)), "events are numbered in their order"

    async def test_a_launch_is_idempotent(self, backend: Backend) -> None:
        async with self.connected(backend) as (host, watcher):
            for _ in range(3):
                await host.launch([launch("run1.1.1", "sleep", "60")])
            await watcher.until("run1.1.1", "started")
            assert [one.attempt_id for one in await host.known()] == ["run1.1.1"]
            await host.stop(["run1.1.1"], "enough")
            await watcher.until("run1.1.1")
            assert len({one.number for one in watcher.of("run1.1.1", "started")}) == 1

    async def test_work_outlives_the_connection(self, backend: Backend) -> None:
        async with self.connected(backend) as (host, watcher):
            await host.launch([launch("run1.1.1", "sleep", "60")])
            await watcher.until("run1.1.1", "started")
        async with self.connected(backend, epoch=2) as (host, watcher):
            known = await host.known()
            assert [(one.attempt_id, one.live) for one in known] == [("run1.1.1", True)]
            assert await host.observe("run1.1.1", -1)
            assert (await watcher.until("run1.1.1", "started")).number == 1
            await host.stop(["run1.1.1"], "enough")
            assert (await watcher.until("run1.1.1")).data["cause"] == "cancelled"

    async def test_an_end_waits_to_be_collected(self, backend: Backend, tmp_path: Path) -> None:
        async with self.connected(backend) as (host, watcher):
            await host.launch([launch("run1.1.1", "true")])
            end = await watcher.until("run1.1.1")
        async with self.connected(backend, epoch=2) as (host, watcher):
            assert [one.live for one in await host.known()] == [False]
            assert await host.observe("run1.1.1", end.number - 1)
            assert (await watcher.until("run1.1.1")).number == end.number
            assert len(watcher.seen) == 1, "known events are not sent again"
            for _ in range(2):
                await host.collect("run1.1.1", tmp_path / "there" / "1", {})
            assert (tmp_path / "there" / "1" / "journal.jsonl").exists()
            for _ in range(2):
                await host.forget(["run1.1.1"])
            assert await host.known() == []

    async def test_unknown_attempts_are_nothing_special(self, backend: Backend) -> None:
        async with self.connected(backend) as (host, _):
            assert not await host.observe("run1.9.9", -1)
            await host.stop(["run1.9.9"], "enough")
            await host.collect("run1.9.9", Path("/nowhere/9"), {})
            await host.forget(["run1.9.9"])

    async def test_runs_do_not_see_each_other(self, backend: Backend) -> None:
        async with self.connected(backend) as (one, watcher), self.connected(backend, run="run2") as (two, _):
            await one.launch([launch("run1.1.1", "true")])
            await watcher.until("run1.1.1")
            assert len(await one.known()) == 1
            assert await two.known() == []

    async def test_an_older_epoch_is_refused(self, backend: Backend) -> None:
        async with self.connected(backend, epoch=1) as (old, _), self.connected(backend, epoch=2) as (new, watcher):
            with pytest.raises(BackendError):
                await old.launch([launch("run1.1.1", "true")])
            await new.launch([launch("run1.1.1", "true")])
            await watcher.until("run1.1.1")
            with pytest.raises(BackendError):
                await old.forget(["run1.1.1"])

    async def test_it_can_be_asked_otherwise(self, backend: Backend) -> None:
        async with self.connected(backend) as (host, _):
            assert await backend.ask_otherwise() is OtherWay.ALIVE
            assert not host.is_lost

    async def test_a_machine_that_stays_is_not_preempted(self, backend: Backend) -> None:
        async with self.connected(backend) as (host, _):
            await host.known()
            with anyio.move_on_after(0.05) as waiting:
                await host.preemption_notice()
            assert waiting.cancelled_caught
