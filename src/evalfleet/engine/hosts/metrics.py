"""Stores what the hosts of a run report: their load, for all hosts at once from time to time, and their events."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import anyio

from evalfleet.core.hosts.load import Load, Sample
from evalfleet.engine.hosts.host_events import HostEvents
from evalfleet.hosts.base import HostInfo
from evalfleet.model import Run
from evalfleet.store.store import Store
from evalfleet.store.thread import StoreThread

_LOOKS = 4  # between two writes


class HostMetrics:
    """Used by the loop's thread only.

    Args:
        hosts: those that are reached now, with their last load.
        ping_s: how often they are asked.
        host_events: the events that they reported.
    """

    def __init__(
        self,
        store: Store,
        thread: StoreThread,
        run: Run,
        hosts: Callable[[], Iterable[HostInfo]],
        ping_s: float,
        host_events: HostEvents | None = None,
    ) -> None:
        self._run = run
        self._host_events = host_events
        self._store = store
        self._thread = thread
        self._hosts = hosts
        self._pause_s = ping_s / 2
        self._last: dict[str, Load] = {}
        self._seen: dict[str, list[Sample]] = {}

    async def serve(self) -> None:
        """Read and write until cancelled."""
        looks = 0
        while True:
            await anyio.sleep(self._pause_s)
            await self._look(list(self._hosts()))
            for event in self._host_events.take() if self._host_events else ():
                await self._thread.call(self._store.events.note, self._run.id, event.type, event.data)
            looks += 1
            if looks % _LOOKS == 0 and self._seen:
                seen, self._seen = self._seen, {}
                await self._thread.call(self._store.loads.add, seen)

    async def _look(self, hosts: Iterable[HostInfo]) -> None:
        # By identity: an answer equal to the one before is a new answer.
        new = {info.name: info.load for info in hosts if info.load is not self._last.get(info.name)}
        if not any(load is not None for load in new.values()):
            return
        now = await self._thread.call(self._store.now)
        for name, load in new.items():
            if load is not None:
                self._last[name] = load
                self._seen.setdefault(name, []).append(Sample(at=now, load=load))
