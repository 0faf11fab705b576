"""The hosts of a run while they come and go: follows the fleet, with one session per host.

A host that joins gets its session at once. A host that leaves gets no new work; if it still answers, what has ended there is
collected; then its attempts end with the cause that the fleet reports.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress

import anyio
from anyio.abc import TaskGroup

from evalfleet.engine.dispatcher import Dispatcher
from evalfleet.engine.hosts.collector import FileCollector
from evalfleet.engine.hosts.connection import HostConnection
from evalfleet.engine.hosts.delivery import OrderDelivery
from evalfleet.engine.hosts.session import HostSession
from evalfleet.engine.orders import Ended, Orders
from evalfleet.engine.settings import EngineSettings
from evalfleet.errors import BackendError
from evalfleet.hosts.base import AttemptEvent, Backend, Fleet, FollowsHealth, HostInfo, Inbox
from evalfleet.model import JsonObject
from evalfleet.store.store import Store
from evalfleet.store.thread import StoreThread

_DELIVERY_S = 60.0  # of orders to one host; a slow host must not delay the others


class HostSessions:
    """Used by the loop's thread only.

    Args:
        backends: those that the fleet had when the dispatcher was made.
        record: makes a file collector.
        notice: called with lines for people.
    """

    def __init__(
        self,
        fleet: Fleet,
        backends: Iterable[Backend],
        dispatcher: Dispatcher,
        thread: StoreThread,
        inbox: Inbox,
        store: Store,
        settings: EngineSettings,
        record: Callable[[], FileCollector],
        notice: Callable[[str], None],
    ) -> None:
        self._fleet = fleet
        self._dispatcher = dispatcher
        self._thread = thread
        self._inbox = inbox
        self._store = store
        self._settings = settings
        self._record = record
        self._notice = notice
        self._sessions = {backend.name: self._session(backend) for backend in backends}
        self._departed = record()  # of hosts that left the run: their files are not waited for
        self._departed.abandon()
        self._uncollected: list[Ended] = []  # files that a host still had when its session was closed
        self._orphaned: set[str] = set()  # attempts that were reported as ended
        self._told: Counter[str] = Counter()  # how busy the fleet thinks each host is
        self._waits = False  # that there is no host was reported
        self._look = anyio.Event()  # a session was closed: the fleet may have its host again, or know its departure
        self._stepped = anyio.Event()

    @property
    def backends(self) -> list[Backend]:
        return [session.backend for session in self._sessions.values() if not session.is_leaving]

    @property
    def reached(self) -> list[HostInfo]:
        sessions = self._sessions.values()
        return [session.host.info for session in sessions if session.host and not session.is_leaving]

    @property
    def draining(self) -> frozenset[str]:
        """Hosts that the fleet wants no new work for."""
        return frozenset(self._fleet.draining())

    @property
    def unreached(self) -> dict[str, str]:
        """Hosts that are not reached now, and why."""
        remote = {name: one for name, one in self._sessions.items() if one.backend.is_remote}
        return {name: one.trouble for name, one in remote.items() if one.trouble and one.host is None}

    @property
    def is_collecting(self) -> bool:
        """Whether files of ended attempts are still on their way."""
        busy = any(session.collector.is_busy for session in self._sessions.values())
        return busy or self._departed.is_busy or bool(self._uncollected)

    def collect(self, ended: Iterable[Ended]) -> None:
        for one in ended:
            session = self._sessions.get(one.attempt.host)
            (session.collector if session else self._departed).put([one])

    def hand_out(self, orders: Orders) -> None:
        """Pass on what a step decided, to the hosts and to the fleet."""
        self.collect(orders.collect)
        for name, session in self._sessions.items():
            session.delivery.put(
                orders.launch.get(name, ()),
                orders.stop.get(name, ()),
                orders.stop_reason,
                orders.forget,
                orders.slots.get(name),
            )
        for name, reason in orders.blamed.items():
            self._fleet.blame(name, reason)
            self._notice(f"host {name} is quarantined and gets no more work: {reason}")
        if isinstance(self._fleet, FollowsHealth):
            self._fleet.absent({**orders.absent, **self.unreached})
            for name, fault in orders.ended:
                self._fleet.ended(name, fault)
            # Attempts that were given up and came back occupy workers that the run does not count.
            orders.want += sum(Counter(self._dispatcher.returned.hosts()).values())
        self._fleet.give_up(orders.given_up)
        self._fleet.want(orders.want)
        self._tell_load(orders.proving)
        self._stepped.set()
        self._stepped = anyio.Event()

    def _tell_load(self, proving: Iterable[str]) -> None:
        load = Counter(self._dispatcher.live.counts())
        load.update(proving)
        load.update(self._dispatcher.returned.hosts())
        for name, session in self._sessions.items():
            load[name] += session.collector.waiting
        for name in self._sessions:
            if load[name] != self._told[name]:
                self._fleet.busy(name, load[name])
        self._told = load

    async def delivered(self) -> None:
        """Return when no order is being delivered."""
        for session in list(self._sessions.values()):
            await session.delivery.delivered()

    async def serve(self) -> None:
        """Follow the fleet until cancelled."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._departed.serve)
            for session in self._sessions.values():
                group.start_soon(self._serve, session)
            while True:
                self._look = anyio.Event()
                await self._follow(group)
                await _first_of(self._fleet.changed, self._look.wait)

    async def _follow(self, group: TaskGroup) -> None:
        given = {backend.name: backend for backend in self._fleet.backends()}
        for name, session in self._sessions.items():
            if given.get(name) is not session.backend and not session.is_leaving:
                session.is_leaving = True
                group.start_soon(self._close, session)
        for name, backend in given.items():
            if name not in self._sessions:
                await self._thread.call(self._dispatcher.hosts.joined, name, backend.slots, backend.canary)
                self._sessions[name] = session = self._session(backend)
                group.start_soon(self._serve, session)
                await self._note("worker.joined", {"host": name})
        self.collect(self._uncollected)
        self._uncollected = []
        await self._end_orphaned()
        self._say_what_is_missing()
        self._inbox.poke()  # the draining hosts may have changed

    def _session(self, backend: Backend) -> HostSession:
        return HostSession(backend, OrderDelivery(_DELIVERY_S), self._record(), self._inbox.poke)

    async def _serve(self, session: HostSession) -> None:
        connection = HostConnection(
            session, self._dispatcher, self._thread, self._inbox, self._store, self._settings, self._notice
        )
        with session.scope:
            async with anyio.create_task_group() as group:
                group.start_soon(session.serve)
                group.start_soon(connection.serve)
                group.start_soon(connection.judge)

    async def _close(self, session: HostSession) -> None:
        name = session.backend.name
        await self._thread.call(self._dispatcher.hosts.left, name)
        with anyio.move_on_after(self._settings.farewell_s), suppress(BackendError):
            await self._look_once_more(session)
        session.scope.cancel()
        del self._sessions[name]
        self._uncollected += session.collector.surrender()
        departure = self._fleet.departure(name)
        said = {"cause": departure.cause, "message": departure.message} if departure else {}
        await self._note("worker.left", {"host": name, **said})
        self._look.set()

    async def _look_once_more(self, session: HostSession) -> None:
        """Return when everything that has ended on the host is here."""
        if session.host is None:
            return
        ended = {one.attempt_id for one in await session.host.known() if not one.live}
        live = await self._thread.call(self._dispatcher.live.on, session.backend.name)
        for attempt_id in ended & live.keys():
            await session.host.observe(attempt_id, live[attempt_id].last_event)
        while session.collector.is_busy or any(one in self._dispatcher.live for one in ended):
            self._inbox.poke()
            await self._stepped.wait()

    async def _end_orphaned(self) -> None:
        """End the live attempts of hosts that are gone, once the fleet knows why: those hosts cannot be asked."""
        for host in await self._thread.call(self._dispatcher.live.hosts) - self._sessions.keys():
            departure = self._fleet.departure(host)
            if departure is None:
                continue
            end: JsonObject = {"cause": departure.cause, "message": departure.message}
            lost = (await self._thread.call(self._dispatcher.live.on, host)).keys() - self._orphaned
            self._orphaned |= lost
            self._inbox.put([AttemptEvent(one, 1 << 30, 0.0, "ended", end) for one in sorted(lost)])

    def _say_what_is_missing(self) -> None:
        if not self._sessions and not self._waits:
            run = self._dispatcher.run
            self._notice(f"run {run.id} waits for a worker: {self._fleet.waits_for()}")
        self._waits = not self._sessions

    async def _note(self, event: str, data: JsonObject) -> None:
        await self._thread.call(self._store.events.note, self._dispatcher.run.id, event, data)


async def _first_of(*waits: Callable[[], Awaitable[object]]) -> None:
    """Return when one of them does."""
    async with anyio.create_task_group() as group:

        async def wait_for(wait: Callable[[], Awaitable[object]]) -> None:
            await wait()
            group.cancel_scope.cancel()

        for wait in waits:
            group.start_soon(wait_for, wait)
