"""This machine as a host: one runner per spool, which all runs of the home share.

Tasks are processes of the runner, not of the controller, so they continue when the controller is killed. Files are not copied:
the folder of an ended attempt is renamed into the home (see `hosts.local.collect`).
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
from msgspec import Struct

from evalfleet.core.hosts.health import OtherWay
from evalfleet.errors import BackendError, RunnerUnavailable
from evalfleet.hosts.base import HostInfo, Inbox, gpus_of, single_error
from evalfleet.hosts.local.collect import collect_files
from evalfleet.hosts.local.launcher import RunnerInfo, plain_environment, runner_info, start_runner, write_runner
from evalfleet.hosts.protocol.link import PROTOCOL, RunnerLink
from evalfleet.hosts.protocol.runner_host import RunnerHost, into
from evalfleet.layout import Home
from evalfleet.model import JsonObject
from evalfleet.runner.attempt.process_tree import is_same
from evalfleet.runner.host import slot_locks

HOST = "local"
_CONNECT_S = 10.0
_HELLO_S = 10.0  # a runner answers in milliseconds
_ENDED_S = 5.0


class LocalSettings(Struct, frozen=True, kw_only=True):
    python: str
    idle_s: float
    name: str = HOST  # of the host
    price_usd_per_hour: float = 0.0
    memory_mb: int | None = None  # None: what the machine has
    slots: int | None = None  # None: as many as runs ask for
    slot_locks: Path | None = None  # where the slots are counted; None: with those of all homes of this machine


class LocalBackend:
    """Implements `Backend`."""

    is_remote = False
    canary = None

    def __init__(self, home: Home, settings: LocalSettings) -> None:
        self.name = settings.name
        self.slots = settings.slots
        self._home = home
        self._settings = settings

    @asynccontextmanager
    async def acquire(self, run_id: str, epoch: int, inbox: Inbox) -> AsyncGenerator[LocalHost]:
        runner = await self._current_runner()
        with single_error():
            async with self._connected(runner, inbox) as link:
                inventory = await self._introduce(link, runner, run_id, epoch)
                info = HostInfo(
                    name=self.name,
                    memory_mb=self._settings.memory_mb or inventory.get("memory_mb"),
                    gpus=len(inventory.get("gpus") or ()),
                    price_usd_per_hour=self._settings.price_usd_per_hour,
                    devices=gpus_of(self.name, inventory.get("gpus") or ()),
                )
                yield LocalHost(self._home, link, inbox, info, run_id, epoch, slots=self.slots)

    async def _introduce(self, link: RunnerLink, runner: RunnerInfo, run_id: str, epoch: int) -> JsonObject:
        """Raise the fence of the run. Returns the host's resources."""
        with anyio.move_on_after(_HELLO_S):
            await link.request("hello", protocol=PROTOCOL, run=run_id, epoch=epoch, **self._home.claim)
            return await link.request("inventory")
        # Not ended by force: it may be busy with the tasks of other runs, and unreachable is not failed.
        raise RunnerUnavailable(
            f"the runner (process {runner.pid}) has not answered for {_HELLO_S:.0f} s; if it hangs, end it with "
            f"`kill -9 {runner.pid}`: its tasks are then started again"
        )

    async def ask_otherwise(self) -> OtherWay:
        runner = runner_info(self._home.spool)
        if runner is None:
            return OtherWay.GONE  # no process holds the spool's lock
        with anyio.move_on_after(_CONNECT_S), suppress(BackendError), single_error():
            async with self._connected(runner, Inbox()) as link:
                await link.request("ping")
                return OtherWay.ALIVE
        return OtherWay.SILENT

    async def reset(self) -> None:
        runner = runner_info(self._home.spool)
        # By pid and start time: the pid alone may have been reused.
        if runner is not None and is_same(runner.pid, runner.start_time, runner.boot_id):
            with suppress(ProcessLookupError):
                os.kill(runner.pid, signal.SIGKILL)

    async def release(self) -> None:
        runner = runner_info(self._home.spool)
        if runner is not None:
            await self._end_if_idle(runner)

    async def _current_runner(self) -> RunnerInfo:
        """A runner of this version. One of another version is used only while it is busy and its protocol is compatible."""
        runner = await self._start()
        _, version = await anyio.to_thread.run_sync(write_runner, self._home.spool)
        if runner.version == version:
            return runner
        if await self._end_if_idle(runner):
            return await self._start()
        if runner.protocol != PROTOCOL:
            raise RunnerUnavailable(
                f"the runner in {self._home.spool} is of another evalfleet version (protocol {runner.protocol}) "
                f"and still has tasks; wait for them, or finish them with that version"
            )
        return runner

    async def _start(self) -> RunnerInfo:
        settings, environment = self._settings, plain_environment()
        if settings.slot_locks is not None:
            environment[slot_locks.VARIABLE] = str(settings.slot_locks)
        return await start_runner(self._home.spool, settings.python, settings.idle_s, environment=environment)

    async def _end_if_idle(self, runner: RunnerInfo) -> bool:
        """Ask the runner to end if it is idle; True if it has ended."""
        with suppress(BackendError), single_error():
            async with self._connected(runner, Inbox()) as link:
                answer = await link.request("shutdown", if_idle=True)
                if answer.get("ended"):
                    with anyio.move_on_after(_ENDED_S):
                        await link.gone.wait()
                        return True
        return False

    @asynccontextmanager
    async def _connected(self, runner: RunnerInfo, inbox: Inbox) -> AsyncGenerator[RunnerLink]:
        try:
            with anyio.fail_after(_CONNECT_S):
                stream = await anyio.connect_unix(runner.socket)
        except (OSError, TimeoutError) as error:
            raise RunnerUnavailable(f"the runner (process {runner.pid}) does not answer at {runner.socket}") from error
        async with RunnerLink.connect(stream, into(inbox)) as link:
            yield link


class LocalHost(RunnerHost):
    """Implements `Host`."""

    def __init__(
        self, home: Home, link: RunnerLink, inbox: Inbox, info: HostInfo, run_id: str, epoch: int, *, slots: int | None
    ) -> None:
        super().__init__(link, inbox, info, run_id, epoch, python=sys.executable, slots=slots, claim=home.claim)
        self._home = home

    async def collect(
        self, attempt_id: str, destination: Path, secrets: Mapping[str, str], *, listed_only: bool = False
    ) -> None:
        source = self._home.spooled(attempt_id)
        if listed_only or secrets:
            await anyio.to_thread.run_sync(
                partial(collect_files, source, destination, secrets, listed_only=listed_only)
            )
        else:
            collect_files(source, destination, secrets, listed_only=False)
