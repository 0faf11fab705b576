"""The controller of one run: a task group of small services around the dispatcher.

- the dispatch loop steps the dispatcher with what was observed and hands out its orders;
- the host sessions follow the fleet, one session per host: its connection reaches the host, asks for every attempt that
  should be there, and watches that it answers; its delivery carries orders there; its collector collects files;
- the keeper renews leases; the listener obeys requests of other processes.

Stopping cancels the task group. The run is always left in the store in a state from which the next controller can go on.
"""

from __future__ import annotations

import os
import random
import signal
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from enum import StrEnum
from functools import partial
from typing import Protocol

import anyio
import anyio.to_thread

from evalfleet.engine.dispatcher import Dispatcher, Secrets
from evalfleet.engine.hosts.collector import FileCollector
from evalfleet.engine.hosts.host_events import HostEvents
from evalfleet.engine.hosts.metrics import HostMetrics
from evalfleet.engine.hosts.sessions import HostSessions
from evalfleet.engine.hosts.uploads import FileUploads
from evalfleet.engine.orders import Mode, Orders
from evalfleet.engine.placement.workers import WorkerTable
from evalfleet.engine.settings import EngineSettings
from evalfleet.errors import BackendError, Owned, StoreBusy, StoreUnwritable
from evalfleet.files.home import home_files
from evalfleet.hosts.base import Backend, Fleet, FollowsHealth, Inbox
from evalfleet.layout import Home
from evalfleet.model import Run, Verb
from evalfleet.store.home.identity import facts_of
from evalfleet.store.store import Store
from evalfleet.store.thread import StoreThread

LISTEN_S = 0.2
SPECTATE_S = 0.25
GPUS_S = 0.02  # how soon a waiting run notices GPUs that another process releases
_GRACE_S = 2.0  # time for a second Ctrl-C
_LEAVE_S = 5.0
_HURRY_S = 1.0


class Ending(StrEnum):
    SETTLED = "settled"  # completed, cancelled or paused: the run's state says which
    INTERRUPTED = "interrupted"  # resumable


class Spectator(Protocol):
    """Watches the run while it goes on, such as a live view. Called from its own thread."""

    def tick(self) -> None: ...


def owner_name() -> str:
    return f"process {os.getpid()} on {socket.gethostname()}"


class Supervisor:
    def __init__(
        self,
        *,
        store: Store,
        home: Home,
        fleet: Fleet,
        run: Run,
        settings: EngineSettings,
        secrets: Secrets,
        spectators: Sequence[Spectator] = (),
        notice: Callable[[str], None] = lambda _: None,
        rng: random.Random | None = None,
        host_events: HostEvents | None = None,
    ) -> None:
        self._store = store
        self._home = home
        self._run = run
        self._settings = settings
        self._spectators = spectators
        self._notice = notice
        self._thread = StoreThread()
        self._inbox = Inbox()
        self._fleet = fleet
        backends = fleet.backends()
        is_remote = all(backend.is_remote for backend in backends)
        hosts = [(backend.name, backend.slots) for backend in backends]
        workers = WorkerTable(run.policy.workers, hosts, is_remote=is_remote)
        self._dispatcher = Dispatcher(store, run, settings, secrets, rng or random.Random(), workers)
        self._dispatcher.hosts.expect(isinstance(fleet, FollowsHealth) and fleet.expects_hosts())
        for backend in backends:
            self._dispatcher.hosts.prove(backend.name, backend.canary)
        uploads = FileUploads(store, self._thread, run, home_files(home.path), notice)
        record = partial(FileCollector, store, self._thread, home, run, secrets, uploads, self._inbox.poke)
        self._sessions = HostSessions(
            fleet, backends, self._dispatcher, self._thread, self._inbox, store, settings, record, notice
        )
        self._metrics = HostMetrics(
            store, self._thread, run, lambda: self._sessions.reached, settings.ping_s, host_events
        )
        self._ending = Ending.SETTLED
        self._loop = anyio.CancelScope()  # around the dispatch loop; cancelled by a second interrupt

    async def drive(self, *, signals: bool = False, mode: Mode = Mode.DRIVE) -> Ending:
        """Drive the run, which we own and which is running, until it settles or we are interrupted."""
        self._dispatcher.mode = Mode.CANCEL if self._run.cancelling else mode
        self._sessions.collect(await self._thread.call(self._dispatcher.start))
        async with anyio.create_task_group() as group:
            group.start_soon(self._fleet.serve)
            group.start_soon(self._sessions.serve)
            group.start_soon(self._metrics.serve)
            group.start_soon(self._keep)
            group.start_soon(self._listen)
            group.start_soon(self._spectate)
            if signals:
                group.start_soon(self._obey_signals)
            with self._loop:
                await self._dispatch()
            for name, why in self._sessions.unreached.items():
                self._notice(f"host {name} was not reached at the end: {why}")
            group.cancel_scope.cancel()
        await self._release()
        return self._ending

    async def _release(self) -> None:
        """Release all hosts at the same time; a host that does not answer delays the others only briefly."""
        patience_s = _LEAVE_S if self._ending is Ending.SETTLED else _HURRY_S

        async def release(backend: Backend) -> None:
            with suppress(BackendError):
                await backend.release()

        with anyio.CancelScope(shield=True, deadline=anyio.current_time() + patience_s):
            async with anyio.create_task_group() as group:
                for backend in self._sessions.backends:
                    group.start_soon(release, backend)

    # The dispatch loop

    async def _dispatch(self) -> None:
        while True:
            orders = await self._thread.call(
                self._dispatcher.step,
                self._inbox.take(),
                self._sessions.reached,
                draining=self._sessions.draining,
                moves=self._fleet.moves() if isinstance(self._fleet, FollowsHealth) else 0,
                collecting=self._sessions.is_collecting,
            )
            self._sessions.hand_out(orders)
            if orders.done:
                with anyio.move_on_after(_LEAVE_S):
                    await self._sessions.delivered()
                return
            await self._rest(orders)

    async def _rest(self, orders: Orders) -> None:
        """Wait for events. While tasks wait for GPUs, releases by other processes count too."""
        if orders.gpu_turn is None:
            await self._inbox.wait(orders.wait_s)
            return
        until = anyio.current_time() + orders.wait_s
        turn = orders.gpu_turn
        while (left_s := until - anyio.current_time()) > 0:
            if await self._inbox.wait(min(GPUS_S, left_s)):
                return
            moved = await self._thread.call(self._store.gpus.turn)
            if moved != turn and await self._thread.call(self._store.gpus.is_turn, self._run.id):
                self._dispatcher.gpus_moved()
                return
            turn = moved

    # Services

    async def _keep(self) -> None:
        """Renew our leases, and notice when another controller has taken the run."""
        while True:
            await self._thread.call(self._store.attempts.renew, self._run, self._settings.lease_s)
            await anyio.sleep(self._settings.lease_s / 3)
            current = await self._thread.call(self._store.runs.get, self._run.id)
            if current.epoch != self._run.epoch:
                raise Owned(f"run {self._run.id} was taken over by {current.driver}; this controller stops")

    async def _listen(self) -> None:
        """Obey requests of other processes. Their commits are seen without asking the tables."""
        due, inode = True, await self._thread.call(self._inode)
        while True:
            if due:
                await self._obey_requests()
            await anyio.sleep(LISTEN_S)
            if await self._thread.call(self._inode) != inode:  # collected files would get into another home, or be lost
                raise StoreUnwritable(f"{self._home.path} no longer exists: resume the run where its home is now")
            due = await self._thread.call(self._store.changed)

    def _inode(self) -> str | None:
        try:
            return facts_of(self._home.path).inode
        except OSError:
            return None

    async def _obey_requests(self) -> None:
        for request in await self._thread.call(self._store.requests.pending, self._run.id):
            if await self._thread.call(self._dispatcher.obey, request) and request.verb is Verb.CANCEL:
                self._notice(f"cancelled by {request.asked_by}")
        self._inbox.poke()

    async def _spectate(self) -> None:
        limiter = anyio.CapacityLimiter(1)
        while self._spectators:
            for spectator in self._spectators:
                with suppress(StoreBusy):  # it looks again in a moment
                    await anyio.to_thread.run_sync(spectator.tick, limiter=limiter)
            await anyio.sleep(SPECTATE_S)

    async def _obey_signals(self) -> None:
        """First signal: admit nothing and leave; attempts go on. A second one soon after: end the attempts too."""
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as received:
            number = await anext(received)
            self._ending = Ending.INTERRUPTED
            if self._dispatcher.mode is Mode.CANCEL:
                self._loop.cancel()  # the cancel is stored with the run
            self._dispatcher.mode = Mode.STOP
            count = len(self._dispatcher.live)
            with anyio.move_on_after(_GRACE_S if count and number is signal.SIGINT else 0.0):
                self._notice(_farewell(self._run.id, count, number))
                await anext(received)
                self._notice("ending the running tasks; they are queued again")
                self._dispatcher.mode = Mode.WITHDRAW
            if self._dispatcher.mode is Mode.WITHDRAW:
                self._inbox.poke()
                await anext(received)  # a third interrupt leaves at once
            self._loop.cancel()


def _farewell(run_id: str, count: int, number: signal.Signals) -> str:
    tasks = f"{count} running task{'s go' if count > 1 else ' goes'} on" if count else "nothing is running"
    again = "; Ctrl-C again to end them too" if count and number is signal.SIGINT else ""
    return f"stopping: {tasks}{again}. `evalfleet resume {run_id}` collects and continues"
