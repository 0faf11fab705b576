"""Keeps child processes, one for each run or pool that this server looks after.

A child is a command as a person would type it (`evalfleet resume RUN`, `evalfleet pool settle NAME`): whatever happens in it, neither
the page nor another child is slowed or taken along. What is looked after is remembered in the store, so that the next server goes on
with it after `kill -9`. A child that ends before its work is done is started again after a growing delay.

`RunChildren` and `PoolChildren` say what is special about each kind.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import anyio
from msgspec import Struct, field

from evalfleet import config
from evalfleet.daemon.file_limit import lower_file_limit
from evalfleet.daemon.readers import Readers
from evalfleet.errors import EvalfleetError
from evalfleet.store.reader import StoreReader
from evalfleet.store.store import Store

_LOOK_S = 0.5
_LEAVE_S = 15.0

S = TypeVar("S")
Write = Callable[[Callable[[Store], Any]], Awaitable[Any]]


class Next(StrEnum):
    """What is done with a child that has no process."""

    START = "start"
    WAIT = "wait"
    FORGET = "forget"


class Child(Struct):
    """A run or pool that is looked after."""

    requested: bool = True  # start it even if the store says that nothing is left to do
    retry: bool = False  # machines in quarantine may prove themselves again
    more: bool = False  # requested again while its process was about to end
    failures: int = 0  # in a row
    not_before: float = 0.0  # by the loop's clock
    owner: tuple[int, float] | None = None  # the epoch of the run's owner, and since when we see it
    recalled: bool = False  # a server before this one looked after it, and its process may have outlived that server
    process: subprocess.Popen[bytes] | None = None


class ChildKind(Protocol[S]):
    """What a supervisor must know about runs, or about pools. `S` is the state of one, as it is in the store."""

    @property
    def kind(self) -> str:
        """The word for it in the store and in messages."""
        ...

    @property
    def most(self) -> int:
        """Processes at a time."""
        ...

    @property
    def stops_with_server(self) -> bool: ...

    def read(self, store: StoreReader, names: Collection[str]) -> dict[str, S]:
        """The states of those named that exist, and of all that may need a child."""
        ...

    def needed(self, state: S, now: float) -> Child | None:
        """A child for what was not requested, if it needs one."""
        ...

    def next(self, child: Child, state: S | None, *, unseen: bool, now: float) -> Next:
        """What is done with a child. Called for those with a process, too, for which the answer counts as WAIT.

        Args:
            state: None: it does not exist.
            unseen: it was requested after `state` was read.
        """
        ...

    def delay_s(self, code: int, state: S, failures: int) -> float | None:
        """After how long the child is started again when its process has ended; None: it is not."""
        ...

    def describe(self, state: S) -> str: ...

    def arguments(self, name: str, child: Child) -> tuple[str, ...]: ...

    def log(self, name: str) -> str:
        """Where its output goes, below the home."""
        ...

    @property
    def former_file(self) -> tuple[str, str]:
        """Where versions without the table kept what is remembered: a file below the home, and the key in it."""
        ...


class ChildSupervisor(Struct, Generic[S], kw_only=True):
    """Used in the event loop's thread."""

    settings: config.Settings
    readers: Readers
    write: Write
    notice: Callable[[str], None]
    of: ChildKind[S]
    _children: dict[str, Child] = field(default_factory=dict[str, Child])
    _forgotten: set[str] = field(default_factory=set[str])  # since the store was last told
    _unseen: set[str] = field(
        default_factory=set[str]
    )  # requested since the last look began, which knows nothing of them
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _writing: anyio.Lock = field(default_factory=anyio.Lock)

    async def request(self, name: str, *, retry: bool = False) -> None:
        """Start a child for it as soon as there is room. When this returns, the request is in the store."""
        child = self._children.setdefault(name, Child())
        child.requested = True
        child.retry |= retry
        child.more = child.process is not None
        child.failures, child.not_before = 0, 0.0
        self._unseen.add(name)
        self._wake.set()
        await self._remember({})

    async def serve(self) -> None:
        """Look after children until cancelled."""
        await self._recall()
        try:
            while True:
                try:
                    await self._look()
                except (EvalfleetError, OSError) as error:  # the store is busy, or no process can be started
                    self.notice(f"{self.of.kind}s: {error}")
                with anyio.move_on_after(_LOOK_S):
                    await self._wake.wait()
                self._wake.clear()
        finally:
            with anyio.CancelScope(shield=True, deadline=anyio.current_time() + _LEAVE_S):
                await self._leave()

    async def _look(self) -> None:
        ended = {
            name: code
            for name, child in self._children.items()
            if child.process is not None and (code := child.process.poll()) is not None
        }
        self._unseen.clear()
        states, remembered = await self.readers.call(self._read)  # after the processes, whose last words are in it
        now = anyio.current_time()
        for name, state in states.items():
            if name not in self._children and (child := self.of.needed(state, now)) is not None:
                self._children[name] = child
        for name, child in list(self._children.items()):
            state = states.get(name)
            if name in ended:
                self._end(name, child, ended[name], state, now)
            if name in self._children:
                self._go_on(name, child, state, now)
        await self._remember(remembered)

    def _read(self, store: StoreReader) -> tuple[dict[str, S], dict[str, bool]]:
        with store.snapshot():
            return self.of.read(store, list(self._children)), store.daemon.children(self.of.kind)

    def _go_on(self, name: str, child: Child, state: S | None, now: float) -> None:
        then = self.of.next(child, state, unseen=name in self._unseen, now=now)
        if child.process is not None or then is Next.WAIT:
            return
        if then is Next.FORGET:
            self._forget(name)
        elif self._running < self.of.most:
            self._start(name, child)

    @property
    def _running(self) -> int:
        return sum(child.process is not None for child in self._children.values())

    def _start(self, name: str, child: Child) -> None:
        log = self.settings.home / self.of.log(name)
        log.parent.mkdir(parents=True, exist_ok=True)
        self.notice(f"starting a controller for {self.of.kind} {name}")
        with log.open("ab") as file:
            os.fchmod(file.fileno(), 0o600)
            child.process = subprocess.Popen(
                (sys.executable, "-m", "evalfleet", *self.of.arguments(name, child)),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                env={**config.environment(), "EVALFLEET_HOME": str(self.settings.home)},
                start_new_session=True,  # a Ctrl-C is for us
            )
        child.recalled = False
        lower_file_limit(child.process.pid)
        self._wake_at_end(child.process.pid)
        child.requested = child.retry = child.more = False

    def _wake_at_end(self, pid: int) -> None:
        """Look at once when the process ends; where the system cannot tell, the next look sees it."""
        with suppress(OSError, AttributeError):
            file, loop = os.pidfd_open(pid), asyncio.get_running_loop()

            def ended() -> None:
                loop.remove_reader(file)
                os.close(file)
                self._wake.set()

            loop.add_reader(file, ended)

    def _end(self, name: str, child: Child, code: int, state: S | None, now: float) -> None:
        child.process = None
        if state is None:
            self._forget(name)
            self.notice(f"{self.of.kind} {name} is gone")
            return
        delay = 0.0 if child.more else self.of.delay_s(code, state, child.failures)
        then = f"; again in {delay:.0f} s, {self.of.log(name)} says why" if delay else ""
        self.notice(f"{self.of.kind} {name} is {self.of.describe(state)}{then}")
        if delay is None:
            self._forget(name)
            return
        child.failures += not child.more
        child.requested, child.more, child.owner = True, False, None
        child.not_before = now + delay

    def _forget(self, name: str) -> None:
        del self._children[name]
        self._forgotten.add(name)

    async def _leave(self) -> None:
        """Ask all processes to end, where they end with the server: tasks go on, and the next server continues."""
        running = [child.process for child in self._children.values() if child.process is not None]
        if not self.of.stops_with_server:
            for process in running:
                process.returncode = process.poll() or 0  # it outlives us on purpose, which Python would warn of
            return
        for process in running:
            process.terminate()
        while any(process.poll() is None for process in running):  # noqa: ASYNC110 - other processes
            await anyio.sleep(0.02)

    # What is remembered for the next server

    async def _recall(self) -> None:
        remembered = await self.readers.call(lambda store: store.daemon.children(self.of.kind))
        file, key = self.of.former_file
        former = self.settings.home / file
        for name, retry in {**_former(former, key), **remembered}.items():
            self._children.setdefault(name, Child(retry=retry, recalled=True))
        await self._remember(remembered)
        former.unlink(missing_ok=True)

    async def _remember(self, remembered: dict[str, bool]) -> None:
        """Tell the store what it does not know yet. Another server of the home may remember more there; that is left alone."""
        async with self._writing:  # what is written last is what holds last
            wanted = {name: child.retry for name, child in self._children.items()}
            new = {name: retry for name, retry in wanted.items() if remembered.get(name) is not retry}
            old = self._forgotten - set(wanted)
            if new or old:
                await self.write(lambda store: _remember(store, self.of.kind, new, old))
            self._forgotten -= old


def _remember(store: Store, kind: str, new: dict[str, bool], old: set[str]) -> None:
    with store.batch():
        for name, retry in new.items():
            store.daemon.remember_child(kind, name, retry=retry)
        for name in old:
            store.daemon.forget_child(kind, name)


def _former(path: Path, key: str) -> dict[str, bool]:
    """What an older version remembered in a file; whatever does not fit is left out."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        found: Any = json.loads(path.read_text("utf-8"))[key]
        return {name: isinstance(found, dict) and found[name] is True for name in found if isinstance(name, str)}
    return {}
