"""Which waiting tasks start now: asks the store what is due, the queue for GPUs, `core.placement` for workers, and claims."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from math import inf

from msgspec.structs import replace

from evalfleet.core.failures.attribution import History
from evalfleet.core.gpus.allocation import Grant
from evalfleet.core.placement import Assignment, Candidate, HostRoom, Placement, Slot, place, split
from evalfleet.engine.attempts.live import LiveAttempts
from evalfleet.engine.attempts.other_hosts import OtherHosts
from evalfleet.engine.attempts.returned import ReturnedAttempts
from evalfleet.engine.placement.disk_guard import DiskGuard
from evalfleet.engine.placement.gpu_queue import GpuQueue
from evalfleet.engine.placement.quotas import RunQuotas
from evalfleet.engine.placement.workers import WorkerTable
from evalfleet.engine.settings import EngineSettings
from evalfleet.hosts.base import HostInfo
from evalfleet.model import Distribution, Run, Task
from evalfleet.store.attempts.records import Claim, Claimed
from evalfleet.store.gpus.gpus import devices_of
from evalfleet.store.store import Store

_MORE = 16  # candidates beyond the free slots, for tasks that do not fit or avoid a worker
_MANY = 200  # to tell an outage from bad tasks, variety matters more than the order of the queue
_MOST = 4096
_CROWDED_S = 1.0  # how soon to look again when tasks wait for room that other runs may hold

Picked = tuple[Task, Assignment, Grant | None]


class Admission:
    """Remembers when there can be something to admit, so that most steps need not ask the store."""

    def __init__(
        self,
        store: Store,
        run: Run,
        settings: EngineSettings,
        workers: WorkerTable,
        gpu_queue: GpuQueue,
        other_hosts: OtherHosts,
        returned: ReturnedAttempts,
        quotas: RunQuotas,
    ) -> None:
        self._store = store
        self._run = run
        self._lease_s = settings.lease_s
        self._disk = DiskGuard(store, run, settings.home, settings.keep_free)
        self._workers = workers
        self._gpu_queue = gpu_queue
        self._other_hosts = other_hosts
        self._returned = returned
        self._quotas = quotas
        returned.freed = self.freed
        self._fixed = run.policy.distribution is Distribution.ROUND_ROBIN
        self._look_at = 0.0
        self._moved = False  # GPUs were released: tasks that wait for GPUs come first
        self._full = False  # no worker is free; due tasks wait for one
        self._full_rooms: dict[str, HostRoom] = {}  # of hosts without a free worker

    @property
    def look_at(self) -> float:
        if self._disk.is_full:
            return self._disk.look_at
        return inf if self._full else self._look_at

    def wait_for_room(self) -> None:
        """A claim was refused: others hold what the task asks for."""
        self._look_at = self._store.now() + _CROWDED_S

    def look_again(self, moment: float = 0.0) -> None:
        """A task is or becomes due then."""
        self._look_at = min(self._look_at, moment)

    def gpus_moved(self) -> None:
        """GPUs were freed or granted: a task of this run may start."""
        self._look_at, self._moved = 0.0, True

    def freed(self) -> None:
        """A worker has become free."""
        self._full = False
        if self._fixed:
            self._look_at = 0.0  # no other worker could take what is due in its shard

    def _free_slots(self, live: LiveAttempts, hosts: Iterable[HostInfo], history: History) -> list[Slot]:
        returned, returned_on = self._returned.workers(), set(self._returned.hosts())
        slots: list[Slot] = []
        for host in hosts:
            there, left = live.at(host.name), slots_left(host, live)
            if left == 0 or (len(there) >= self._workers.slots(host.name)):
                continue  # most hosts are full, at most times
            if any(history.runs_alone(one.task.key) for one in there.values()):
                continue
            busy = {one.attempt.worker for one in there.values()} | returned
            names = self._workers.workers(host.name)
            free = [name for name in names if name not in busy and not self._workers.is_banned(name)][:left]
            if host.name in self._workers.alone:
                free = [] if there or host.name in returned_on else free[:1]
            slots += [Slot(worker=name, host=host.name) for name in free]
        return slots

    def pick(
        self,
        live: LiveAttempts,
        hosts: Sequence[HostInfo],
        most: int,
        history: History,
        fresh_first: bool | None,
        probed: Sequence[str] = (),
    ) -> list[Picked]:
        """Tasks, their workers and GPUs; at most `most`. Holds tasks that no host can ever run.

        Args:
            hosts: those that may get work.
            probed: hosts that come after all others.
        """
        now = self._store.now()
        if self._disk.freed():
            self._look_at = 0.0
        if self._disk.is_full:
            return []
        slots = self._free_slots(live, hosts, history)
        if probed:
            slots.sort(key=lambda slot: probed.count(slot.host))
        self._full = not slots or len(live) >= self._workers.most
        if self._full:
            self._gpu_queue.leave()
        if self._full or now < self._look_at:
            return []
        most = min(most, self._workers.most - len(live))
        rooms = self._rooms(live, {slot.host for slot in slots})
        # Read before the candidates: a task that becomes due between the two queries must be in one of the answers.
        due = self._store.tasks.next_due(self._run.id)
        limit = min(len(slots), most) + (_MORE if fresh_first is None else _MANY)
        while True:
            tasks, offered = self._offers(slots) if self._fixed else (self._candidates(limit), slots)
            found = len(tasks)
            if not self._fixed:
                tasks = [task for task in tasks if not self._other_hosts.must_wait(task, live)]
            enough = min(most, len(offered))
            granted = self._grants(tasks, offered, rooms, enough, history)
            placement = self._place(tasks, offered, rooms, enough, history, fresh_first, granted)
            if len(placement.assignments) >= enough or found < limit or limit >= _MOST or self._moved:
                break
            limit *= 8  # the first tasks do not fit; see whether later ones do
        self._moved = False
        by_number = {task.number: task for task in tasks}
        too_large = () if self._workers.expects else placement.unplaceable
        for one in too_large:
            self._store.tasks.hold(self._run, [by_number[one.task].key], one.reason)
        picked = [(by_number[made.task], made, granted.get(made.task)) for made in placement.assignments]
        unused = granted.keys() - {made.task for made in placement.assignments}
        if too_large or (unused and picked):
            self._look_at = 0.0  # GPUs that were granted on a host without a free worker may be free elsewhere
        elif len(picked) < min(most, len(slots)):
            left = found - len(picked)
            self._look_at = min(now + _CROWDED_S if left else inf, inf if due is None else due)
        return picked

    def _rooms(self, live: LiveAttempts, free: set[str]) -> dict[str, HostRoom]:
        """What each host has, and for those with `free` workers what is left of it."""
        return {
            host.name: self._room(host, live) if host.name in free else self._full_room(host)
            for host in self._workers.known
        }

    def _room(self, host: HostInfo, live: LiveAttempts) -> HostRoom:
        there = [one.attempt.requests.memory_mb for one in live.at(host.name).values()]
        used = sum(there) + self._returned.memory_mb(host.name)
        free = None if host.memory_mb is None else host.memory_mb - used
        idle = not there and host.name not in self._returned.hosts()
        return HostRoom(memory_mb=host.memory_mb, free_memory_mb=free, cards=host.devices, is_idle=idle)

    def _full_room(self, host: HostInfo) -> HostRoom:
        """Of a host without a free worker; kept, because most hosts are full at most times, and nothing of it changes."""
        known = self._full_rooms.get(host.name)
        if known is None or (known.memory_mb, known.cards) != (host.memory_mb, host.devices):
            known = HostRoom(memory_mb=host.memory_mb, free_memory_mb=0, cards=host.devices, is_idle=False)
            self._full_rooms[host.name] = known
        return known

    def _grants(
        self, tasks: list[Task], slots: list[Slot], hosts: Mapping[str, HostRoom], most: int, history: History
    ) -> dict[int, Grant]:
        """GPUs for those that need some, by task."""
        wanting = self._quotas.within_gpus([task for task in tasks if task.spec.requests.gpus])
        if not wanting:
            self._gpu_queue.leave()
            return {}
        _, possible = split([self._candidate(task, history) for task in wanting], hosts, self._run.policy.gpus)
        able = {one.number for one in possible}
        wanting = [task for task in wanting if task.number in able]
        own = {task.number: slot for task, slot in zip(tasks, slots, strict=True)} if self._fixed else {}
        allowed = {
            task.number: _allowed(
                task, [own[task.number]] if self._fixed else slots, hosts, history, self._other_hosts.avoided(task)
            )
            for task in wanting
        }
        return self._gpu_queue.ask(wanting, allowed, most, self._workers.known)

    def _place(
        self,
        tasks: list[Task],
        slots: list[Slot],
        hosts: Mapping[str, HostRoom],
        most: int,
        history: History,
        fresh_first: bool | None,
        granted: Mapping[int, Grant],
    ) -> Placement:
        candidates = [self._candidate(task, history, granted.get(task.number)) for task in tasks]
        serving = (
            (host for host in hosts if self._workers.serves(host)) if any(one.failed_on for one in candidates) else ()
        )
        return place(
            candidates,
            slots,
            hosts,
            workers=[name for host in serving for name in self._workers.workers(host)],
            limit=most,
            shards=len(self._workers.shards) if self._fixed else None,
            fresh_first=fresh_first,
            places=self._run.policy.gpus,
        )

    def _candidate(self, task: Task, history: History, granted: Grant | None = None) -> Candidate:
        return Candidate(
            number=task.number,
            requests=task.spec.requests,
            failed_on=history.failed_on(task.key),
            avoid=self._other_hosts.avoided(task),
            alone=history.runs_alone(task.key),
            host=None if granted is None else granted.host,
        )

    def free_slots(self, live: LiveAttempts, hosts: Iterable[HostInfo], history: History) -> tuple[list[Slot], int]:
        """Workers without an attempt, and how many of them the run may use."""
        most = 0 if self._disk.is_full else self._workers.most - len(live)
        return self._free_slots(live, hosts, history), most

    def claim(
        self,
        task: Task,
        made: Assignment,
        host: HostInfo,
        granted: Grant | None,
        usd: float,
        copy_of: int | None = None,
    ) -> Claimed | None:
        claim = Claim(
            task_number=task.number,
            worker=made.worker,
            host=made.host,
            token=secrets.token_hex(8),
            lease_s=self._lease_s,
            requests=task.spec.requests,
            host_memory_mb=None if host.memory_mb is None else host.memory_mb - self._returned.memory_mb(host.name),
            others=host.others,
            devices=() if granted is None else devices_of(granted),
            price_usd_per_hour=host.price_usd_per_hour,
            committed_usd=usd,
            rules=self._quotas.given,
            copy_of=copy_of,
        )
        self._quotas.claimed()
        return self._store.attempts.claim(self._run, claim)

    def _candidates(self, limit: int) -> list[Task]:
        return self._store.tasks.candidates(self._run.id, limit)

    def _offers(self, free: list[Slot]) -> tuple[list[Task], list[Slot]]:
        """Fixed shards: the next task of each free worker's own shard, with its slot.

        Workers without tasks in their own shard take from shards whose worker is absent.
        """
        homes = {worker: index for index, worker in enumerate(self._workers.shards)}
        tasks: list[Task] = []
        slots: list[Slot] = []
        idle: list[Slot] = []
        for slot in free:
            found = self._first_of(homes.get(slot.worker))
            tasks += found
            (slots if found else idle).append(replace(slot, index=homes.get(slot.worker, 0)))
        for index in self._workers.orphans if idle else ():
            if idle and (found := self._first_of(index)):
                tasks += found
                slots.append(replace(idle.pop(0), index=index))
        return tasks, slots

    def _first_of(self, shard: int | None) -> list[Task]:
        if shard is None:
            return []
        return self._store.tasks.candidates(self._run.id, 1, (shard, len(self._workers.shards)))


def slots_left(host: HostInfo, live: LiveAttempts) -> int | None:
    """How many more attempts fit on a host that counts its slots over all runs, homes and users. None: it does not count them."""
    if host.room is None:
        return None
    return host.room.left(live.at(host.name).keys()) if host.room.free else 0


def _allowed(
    task: Task, slots: Iterable[Slot], hosts: Mapping[str, HostRoom], history: History, avoid: frozenset[str]
) -> frozenset[str]:
    """Hosts with a worker and the memory for it; those where it has not failed, if there are any."""
    failed_on = history.failed_on(task.key)
    asked_mb = task.spec.requests.memory_mb
    alone = history.runs_alone(task.key)
    roomy = [
        slot
        for slot in slots
        if slot.host in hosts
        and slot.host not in avoid
        and (hosts[slot.host].is_idle or not alone)
        and _has_memory(hosts[slot.host], asked_mb)
    ]
    fresh = frozenset(slot.host for slot in roomy if slot.worker not in failed_on)
    return fresh or frozenset(slot.host for slot in roomy)


def _has_memory(host: HostRoom, asked_mb: int) -> bool:
    free = host.memory_mb if host.free_memory_mb is None else host.free_memory_mb
    return free is None or asked_mb <= free
