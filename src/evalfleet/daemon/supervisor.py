"""Keeps child processes, one for each run or pool that this controller looks after.

A child is a command as a person would type it (`evalfleet resume RUN`, `evalfleet pool settle NAME`): whatever happens in it, neither
the page nor another child is slowed or taken along. A child that ends before its work is done is started again after a growing delay.

Several controllers may share a store. Each claims what it looks after, in the store, before it starts a process; a claim that its
controller gives up, or whose controller is gone, is free for the others. So `kill -9` costs nothing, whichever of them goes on.

`RunChildren` and `PoolChildren` say what is special about each kind.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import anyio
from msgspec import Struct, field

from evalfleet import config
from evalfleet.daemon.file_limit import lower_file_limit
from evalfleet.daemon.readers import Readers
from evalfleet.daemon.registration import Registration
from evalfleet.errors import EvalfleetError
from evalfleet.store.daemon import ChildRow
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
    recalled: bool = False  # a controller that is gone looked after it, and its process may have outlived that one
    process: subprocess.Popen[bytes] | None = None


class Seen(Struct, Generic[S], frozen=True):
    """What a look at the store found."""

    rows: dict[str, ChildRow]  # what is looked after, by this or another controller
    states: dict[str, S]


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

    def read(self, store: StoreReader, names: Collection[str], room: int) -> dict[str, S]:
        """The states of those named that exist, and of all that may need a child; as many of these as there is room for are enough."""
        ...

    def lacks(self, state: S) -> str | None:
        """What this controller lacks to start a child for it, in words; None: nothing."""
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
    registration: Registration
    _children: dict[str, Child] = field(default_factory=dict[str, Child])
    _forgotten: set[str] = field(default_factory=set[str])  # since the store was last told
    _released: set[str] = field(default_factory=set[str])  # the same
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
        async with self._writing:
            await self.write(
                lambda store: store.daemon.request_child(self.of.kind, name, self.registration.id, retry=child.retry)
            )

    async def serve(self) -> None:
        """Look after children until cancelled."""
        await self._recall_former()
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
        seen = await self.readers.call(self._read)  # after the processes, whose last words are in it
        now = anyio.current_time()
        claimed = await self._claimed(self._wanted(seen, now), seen)
        for name in claimed:
            self._children.setdefault(name, self._new(name, seen, now))  # it may have been requested meanwhile
        for name, child in list(self._children.items()):
            state = seen.states.get(name)
            if name in ended:
                self._end(name, child, ended[name], state, now)
            elif child.process is None and name not in claimed and self._is_taken(name, seen):
                del self._children[name]
            if name in self._children:
                self._go_on(name, child, state, now)
        await self._remember(seen, claimed)

    def _read(self, store: StoreReader) -> Seen[S]:
        with store.snapshot():
            rows = store.daemon.children(self.of.kind)
            names = {*self._children, *(name for name, row in rows.items() if not self._is_kept(row))}
            return Seen(rows, self.of.read(store, names, self.of.most - self._running))

    def _is_kept(self, row: ChildRow) -> bool:
        """Whether another controller looks after it."""
        return row.controller not in ("", self.registration.id) and not self.registration.is_gone(
            row.controller, time.monotonic()
        )

    def _wanted(self, seen: Seen[S], now: float) -> list[str]:
        """What this controller should look after from now on: it may be taken, and there is room."""
        room = self.of.most - self._running
        waits: dict[str, str] = {}
        found: list[str] = []
        for name in [*seen.rows, *(name for name in seen.states if name not in seen.rows)]:
            if name in self._children or not self._is_free(name, seen, now):
                continue
            state = seen.states.get(name)
            why = None if state is None else self.of.lacks(state)
            if why is not None:
                waits[name] = why
            elif len(found) < room:
                found.append(name)
        self.registration.set_waits(self.of.kind, waits)
        return found

    def _is_free(self, name: str, seen: Seen[S], now: float) -> bool:
        row = seen.rows.get(name)
        return not self._is_kept(row) if row is not None else self.of.needed(seen.states[name], now) is not None

    async def _claimed(self, names: list[str], seen: Seen[S]) -> list[str]:
        """Those of them that no other controller was quicker to take."""
        if not names:
            return []

        def claim(store: Store) -> list[str]:
            with store.batch():
                return [name for name in names if self._claim(store, name, seen.rows.get(name))]

        return await self.write(claim)

    def _claim(self, store: Store, name: str, row: ChildRow | None) -> bool:
        was = ChildRow("") if row is None else row
        ours = self.registration.id
        return store.daemon.claim_child(self.of.kind, name, ours, instead_of=was.controller, retry=was.retry)

    def _new(self, name: str, seen: Seen[S], now: float) -> Child:
        row = seen.rows.get(name)
        if row is None:
            return self.of.needed(seen.states[name], now) or Child()
        return Child(retry=row.retry, recalled=row.controller not in ("", self.registration.id))

    def _is_taken(self, name: str, seen: Seen[S]) -> bool:
        """Whether another controller was asked for it since."""
        row = seen.rows.get(name)
        return row is not None and row.controller != self.registration.id and name not in self._unseen

    def _go_on(self, name: str, child: Child, state: S | None, now: float) -> None:
        then = self.of.next(child, state, unseen=name in self._unseen, now=now)
        if child.process is not None or then is Next.WAIT:
            return
        if then is Next.FORGET:
            self._forget(name)
        elif self._running < self.of.most and (state is None or self.of.lacks(state) is None):
            self._start(name, child)
        elif name not in self._unseen:
            del self._children[name]
            self._released.add(name)  # another controller may have room, or what it needs

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

    # What the store knows of it

    async def _recall_former(self) -> None:
        """Take over what an older version remembered in a file."""
        file, key = self.of.former_file
        former = self.settings.home / file
        for name, retry in _former(former, key).items():
            await self.write(partial(_request, kind=self.of.kind, name=name, retry=retry))
        former.unlink(missing_ok=True)

    async def _remember(self, seen: Seen[S], claimed: Collection[str]) -> None:
        """Tell the store what it does not know yet."""
        async with self._writing:  # what is written last is what holds last
            ours = self.registration.id
            new = {
                name: child.retry
                for name, child in self._children.items()
                if ((row := seen.rows.get(name)) is None or (row.controller == ours and row.retry is not child.retry))
                and name not in self._unseen
                and name not in claimed
            }
            old, free = self._forgotten - set(self._children), self._released - set(self._children)
            if new or old or free:
                await self.write(lambda store: _remember(store, self.of.kind, ours, new, old, free))
            self._forgotten -= old
            self._released -= free


def _remember(store: Store, kind: str, ours: str, new: dict[str, bool], old: set[str], free: set[str]) -> None:
    with store.batch():
        for name, retry in new.items():
            store.daemon.claim_child(kind, name, ours, retry=retry)
        for name in old:
            store.daemon.forget_child(kind, name, ours)
        for name in free:
            store.daemon.release_child(kind, name, ours)


def _request(store: Store, *, kind: str, name: str, retry: bool) -> None:
    store.daemon.request_child(kind, name, retry=retry)


def _former(path: Path, key: str) -> dict[str, bool]:
    """What an older version remembered in a file; whatever does not fit is left out."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        found: Any = json.loads(path.read_text("utf-8"))[key]
        return {name: isinstance(found, dict) and found[name] is True for name in found if isinstance(name, str)}
    return {}
