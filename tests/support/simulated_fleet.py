"""Hosts, runners and time that are only computed, for runs of the real dispatcher on the real store at any size.

A host has slots that it shares among runs, as a runner does: a run says how many it could use, and is told how many are kept for
it. An attempt starts after `START_S` and ends when its time is over. There are no processes, no sockets and no files.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterable, Sequence
from itertools import count
from math import inf

from evalfleet.engine.controller import take
from evalfleet.engine.dispatcher import Dispatcher
from evalfleet.engine.orders import Orders
from evalfleet.engine.placement.workers import WorkerTable
from evalfleet.engine.settings import EngineSettings
from evalfleet.hosts.base import AttemptEvent, HostInfo, Launch, SlotReport
from evalfleet.model import JsonObject, Run
from evalfleet.store.store import Store
from evalfleet.testing.clock import FakeClock

START_S = 0.2
Lasts = Callable[[random.Random], float]


class SimulatedHost:
    """One runner and its slots."""

    def __init__(self, name: str, slots: int, moved: Callable[[str, str], None]) -> None:
        """
        Args:
            moved: called with a run and this host when the run must hear of other slots.
        """
        self.name, self.slots = name, slots
        self._moved = moved
        self._live: dict[str, set[str]] = {}  # by run
        self._wanted: dict[str, int] = {}
        self._kept: dict[str, int] = {}

    def info(self, run_id: str) -> HostInfo:
        """What a controller of that run knows of the host."""
        room = SlotReport(free=self._kept.get(run_id, 0), live=frozenset(self._live.get(run_id, ())))
        return HostInfo(name=self.name, memory_mb=64_000, gpus=0, price_usd_per_hour=1.0, room=room)

    def want(self, run_id: str, wanted: int) -> bool:
        """False: it knew that."""
        if self._wanted.get(run_id, 0) == wanted:
            return False
        self._wanted[run_id] = wanted
        self._share()
        return True

    def begin(self, run_id: str, attempt_id: str) -> None:
        self._live.setdefault(run_id, set()).add(attempt_id)
        self._kept[run_id] = max(0, self._kept.get(run_id, 0) - 1)
        self._moved(run_id, self.name)

    def end(self, run_id: str, attempt_id: str) -> None:
        self._live[run_id].discard(attempt_id)
        self._moved(run_id, self.name)
        self._share()

    def _share(self) -> None:
        """Keep the free slots for the runs that could use them, one after the other in turn."""
        before = dict(self._kept)
        for run_id, wanted in self._wanted.items():
            most = max(0, wanted - len(self._live.get(run_id, ())))
            self._kept[run_id] = min(self._kept.get(run_id, 0), most)
        free = self.slots - sum(map(len, self._live.values())) - sum(self._kept.values())
        turn = list(self._wanted)
        while free > 0 and turn:
            turn = [one for one in turn if self._wanted[one] > len(self._live.get(one, ())) + self._kept[one]]
            for one in turn[:free]:
                self._kept[one] += 1
            free -= len(turn[:free])
        for run_id, kept in self._kept.items():
            if kept != before.get(run_id, 0):
                self._moved(run_id, self.name)


class SimulatedFleet:
    """The hosts of one or more runs, and what will happen on them."""

    def __init__(self, clock: FakeClock, hosts: int, slots: int, lasts: Lasts, *, seed: int = 1) -> None:
        self.clock = clock
        self.events: dict[str, list[AttemptEvent]] = {}  # by run, not taken yet
        self.news: dict[str, set[str]] = {}  # by run, the hosts that have other slots now
        names = [f"host{number:05}" for number in range(hosts)]
        self.hosts = {name: SimulatedHost(name, slots, self._moved) for name in names}
        self._slots = slots
        self._lasts = lasts
        self._rng = random.Random(seed)
        self._turn = count()
        self._coming: list[tuple[float, int, str, str, AttemptEvent]] = []

    @property
    def slots(self) -> list[tuple[str, int | None]]:
        return [(name, self._slots) for name in self.hosts]

    def _moved(self, run_id: str, host: str) -> None:
        self.news.setdefault(run_id, set()).add(host)

    def launch(self, run_id: str, host: str, launches: Iterable[Launch]) -> None:
        now = self.clock()
        for one in launches:
            self.hosts[host].begin(run_id, one.attempt_id)
            begun = now + START_S
            over = begun + self._lasts(self._rng)
            end: JsonObject = {
                "cause": "exited", "exit_code": 0, "signal": None, "started_at": begun, "ended_at": over,
                "duration_s": over - begun, "has_result": False, "artifacts": [], "stdout_tail": "", "stderr_tail": "",
            }  # fmt: skip
            self._add(run_id, host, AttemptEvent(one.attempt_id, 1, begun, "started", {}))
            self._add(run_id, host, AttemptEvent(one.attempt_id, 2, over, "ended", end))

    def _add(self, run_id: str, host: str, event: AttemptEvent) -> None:
        heapq.heappush(self._coming, (event.at, next(self._turn), run_id, host, event))

    @property
    def next_at(self) -> float:
        return self._coming[0][0] if self._coming else inf

    def happen(self) -> None:
        """Let happen what is due by the clock."""
        while self._coming and self._coming[0][0] <= self.clock():
            _, _, run_id, host, event = heapq.heappop(self._coming)
            self.events.setdefault(run_id, []).append(event)
            if event.type == "ended":
                self.hosts[host].end(run_id, event.attempt_id)


class SimulatedRun:
    """One run and the dispatcher of its controller."""

    def __init__(self, store: Store, run: Run, fleet: SimulatedFleet, settings: EngineSettings | None = None) -> None:
        settings = settings or EngineSettings()
        self.store, self.fleet = store, fleet
        self.run = take(store, run)
        workers = WorkerTable(self.run.policy.workers, fleet.slots, is_remote=True)
        self.dispatcher = Dispatcher(store, self.run, settings, lambda _: {}, random.Random(1), workers)
        self.collecting = self.dispatcher.start()
        self.is_over = False
        self._lease_s = settings.lease_s
        self._renew_at = fleet.clock() + self._lease_s / 3
        self._look_at = fleet.clock()
        self._infos = {name: host.info(self.run.id) for name, host in fleet.hosts.items()}

    @property
    def next_at(self) -> float:
        """When it looks again by itself."""
        return inf if self.is_over else min(self._look_at, self._renew_at)

    @property
    def is_awake(self) -> bool:
        """Whether there is something to do at this moment."""
        waits = self.run.id in self.fleet.events or self.run.id in self.fleet.news
        return not self.is_over and (waits or self._look_at <= self.fleet.clock())

    def take(self) -> Sequence[AttemptEvent]:
        """What happened since the last step."""
        for name in self.fleet.news.pop(self.run.id, ()):
            self._infos[name] = self.fleet.hosts[name].info(self.run.id)
        return self.fleet.events.pop(self.run.id, ())

    def step(self, seen: Sequence[AttemptEvent]) -> Orders:
        return self.dispatcher.step(seen, list(self._infos.values()))

    def deliver(self, orders: Orders) -> int:
        """Carry the orders to the hosts, and store that files came home, as a collector does. Returns how many hosts were told
        of another number of slots."""
        for host, launches in orders.launch.items():
            self.fleet.launch(self.run.id, host, launches)
        told = sum(self.fleet.hosts[host].want(self.run.id, wanted) for host, wanted in orders.slots.items())
        if orders.collect:
            with self.store.batch():
                for one in orders.collect:
                    self.store.attempts.collect(self.run, one.attempt, ())
        self._look_at = self.fleet.clock() + orders.wait_s
        self.is_over = orders.done
        return told

    def renew(self) -> bool:
        """Renew the leases, if it is time."""
        if self.fleet.clock() < self._renew_at:
            return False
        self._renew_at = self.fleet.clock() + self._lease_s / 3
        self.store.attempts.renew(self.run, self._lease_s)
        return True
