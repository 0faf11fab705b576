"""Drives runs: takes queued ones that nobody owns, each with a controller process of its own.

A controller is `evalfleet resume RUN`, as a person would type it: whatever happens in it, neither the page nor another run is slowed or
taken along. It outlives a server that is killed, and the next server finds the run driven. A server that ends in order asks its
controllers to leave; their tasks go on, and the next server goes on with the runs.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
from msgspec import Struct, field

from evalfleet import config
from evalfleet.daemon.file_limit import lower_file_limit
from evalfleet.daemon.readers import Readers
from evalfleet.model import PauseCause, Run, RunState
from evalfleet.store.base.store import StoreReader

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

_LOOK_S = 1.0
_LEAVE_S = 15.0
_MOMENT_S = 2.0  # who owns a run for longer drives it
_FIRST_S = 60.0  # before a run that paused by its breaker is tried again; doubles each time
_LONGEST_S = 900.0
_CRASH_S = 5.0
_CRASHES = 5
_PAUSED, _INTERRUPTED = 3, 130
_OVER = (RunState.COMPLETED, RunState.CANCELLED)


def again_after_s(code: int, state: RunState, cause: str | None, times: int) -> float | None:
    """Whether a run is to be driven again after its controller ended, and after how long; None: not by us.

    A breaker that stays open is probed on, with growing pauses. A controller that crashed is replaced, a few times. Whatever
    waits for a person is left to a person.
    """
    if state in _OVER or code == _INTERRUPTED:
        return None
    if state is RunState.PAUSED:
        return min(_LONGEST_S, _FIRST_S * 2.0**times) if cause == PauseCause.BREAKER else None
    if code in (0, 1, 2, _PAUSED):
        return None  # it said why it would not
    return _CRASH_S * 2.0**times if times < _CRASHES else None


class _Wanted(Struct):
    """A run that we drive, or will."""

    times: int = 0  # tried again
    not_before: float = 0.0  # by the loop's clock
    owned: tuple[int, float] | None = (
        None  # the epoch of whoever owns it, and since when we see that, by the loop's clock
    )
    again: bool = False  # it was wanted while its controller was about to end
    process: asyncio.subprocess.Process | None = None


class Drivers(Struct, kw_only=True):
    """Used in the event loop's thread."""

    settings: config.Settings
    readers: Readers
    most: int  # runs at a time
    notice: Callable[[str], None]
    _wanted: dict[str, _Wanted] = field(default_factory=dict[str, _Wanted])
    _unseen: set[str] = field(default_factory=set[str])  # wanted since the last look began, which knows nothing of them
    _wake: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def driving(self) -> int:
        return sum(one.process is not None for one in self._wanted.values())

    def want(self, run_id: str) -> None:
        """Drive this run, which nobody drives, as soon as there is room."""
        wanted = self._wanted.setdefault(run_id, _Wanted())
        if wanted.process is not None:
            wanted.again = True
        else:  # the same one: its controller may be about to start
            wanted.times, wanted.not_before = 0, 0.0
        self._unseen.add(run_id)
        self._wake.set()

    async def serve(self) -> None:
        """Drive until cancelled, then ask all controllers to leave."""
        for run_id in self._remembered():
            self._wanted[run_id] = _Wanted()
        try:
            async with anyio.create_task_group() as group:
                while True:
                    await self._fill(group)
                    with anyio.move_on_after(_LOOK_S):
                        await self._wake.wait()
                    self._wake.clear()
        finally:
            with anyio.CancelScope(shield=True, deadline=anyio.current_time() + _LEAVE_S):
                await self._leave()

    async def _fill(self, group: TaskGroup) -> None:
        self._unseen.clear()
        queued, drivable, driven = await self.readers.call(self._look)
        for run_id in queued:
            self._wanted.setdefault(run_id, _Wanted())
        now = anyio.current_time()
        for run_id, wanted in list(self._wanted.items()):
            if run_id in driven and run_id not in self._unseen and not _is_brief(wanted, driven[run_id], now):
                wanted.again = False  # its controller came after the wish; a pause that follows is meant
            if wanted.process is not None or wanted.not_before > now:
                continue
            if run_id not in drivable:
                if run_id not in self._unseen and not _is_brief(wanted, driven.get(run_id), now):
                    del self._wanted[run_id]
            elif self.driving < self.most:
                wanted.process = await self._start(run_id)
                group.start_soon(self._watch, run_id, wanted, wanted.process)
        self._remember()

    def _look(self, store: StoreReader) -> tuple[list[str], set[str], dict[str, tuple[int, str]]]:
        """Queued runs that nobody owns, oldest first; of all that we want those which somebody could still drive; and does,
        with its epoch."""
        queued: list[str] = [
            row["run"].id
            for row in reversed(store.runs_page(limit=1000, states=[RunState.QUEUED]))
            if store.driver(row["run"].id) is None
        ]
        wanted = list(self._wanted)
        drivable = {*queued, *(run_id for run_id in wanted if _is_drivable(store, run_id))}
        owners = {run_id: store.driver(run_id) for run_id in wanted if run_id not in drivable}
        driven = {run_id: (store.run(run_id).epoch, name) for run_id, name in owners.items() if name is not None}
        return queued, drivable, driven

    async def _start(self, run_id: str) -> asyncio.subprocess.Process:
        log = self.settings.home / "runs" / run_id / "controller.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        self.notice(f"driving run {run_id}")
        with log.open("ab") as file:
            os.fchmod(file.fileno(), 0o600)
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "evalfleet", "resume", run_id, "--stay-paused"),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                env={**config.environment(), "EVALFLEET_HOME": str(self.settings.home)},
                start_new_session=True,  # a Ctrl-C is for us; we tell it to leave
            )
        lower_file_limit(process.pid)
        return process

    async def _watch(self, run_id: str, wanted: _Wanted, process: asyncio.subprocess.Process) -> None:
        code = await process.wait()
        run = await self.readers.call(lambda store: _found(store, run_id))
        cause = (run.reason or {}).get("cause") if run else None
        delay = again_after_s(code, run.state, cause, wanted.times) if run else None
        if wanted.again:
            delay = 0.0
        if run is not None:
            then = "" if not delay else f", again in {delay:.0f} s"
            self.notice(f"run {run_id} is {run.state}{then}")
        if delay is None:
            self._wanted.pop(run_id, None)
        else:
            at = anyio.current_time() + delay
            self._wanted[run_id] = _Wanted(times=wanted.times + 1, not_before=at)
        self._wake.set()

    async def _leave(self) -> None:
        """Ask all controllers to leave: tasks go on, the runs can be resumed."""
        running = [one.process for one in self._wanted.values() if one.process is not None]
        for process in running:
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
        for process in running:
            await process.wait()

    # What is remembered for the next server: those runs are taken up again, though they are not queued any more

    @property
    def _file(self) -> Path:
        return self.settings.home / "serve.json"

    def _remembered(self) -> list[str]:
        try:
            found = json.loads(self._file.read_text("utf-8"))["runs"]
        except (OSError, ValueError, KeyError, TypeError):
            return []
        return [run_id for run_id in found if isinstance(run_id, str)]

    def _remember(self) -> None:
        runs = sorted(self._wanted)
        if runs != sorted(self._remembered()):
            partial = self._file.with_name(f".serve.json.{os.getpid()}")
            partial.write_text(json.dumps({"runs": runs}) + "\n", "utf-8")
            partial.replace(self._file)


def _is_brief(wanted: _Wanted, owner: tuple[int, str] | None, now: float) -> bool:
    """Whether somebody may own the run for a moment only, as who changes something in it does: a wish waits for the end of that."""
    if owner is None:
        return False
    epoch, name = owner
    if wanted.owned is None or wanted.owned[0] != epoch:
        wanted.owned = (epoch, now)
    ours = wanted.process is not None and name.startswith(f"process {wanted.process.pid} on ")
    return not ours and now - wanted.owned[1] < _MOMENT_S


def _found(store: StoreReader, run_id: str) -> Run | None:
    return next((run for run in [store.find_run(run_id)] if run.id == run_id), None)


def _is_drivable(store: StoreReader, run_id: str) -> bool:
    run = _found(store, run_id)
    if run is None or store.driver(run_id) is not None:
        return False
    return run.state not in _OVER or bool(store.unended(run_id))
