"""Which waiting tasks start now: asks the store what is due, `core.placement` who goes where, and claims."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from math import inf

from evalfleet.backends.base import HostInfo
from evalfleet.core.attribution import History
from evalfleet.core.placement import Assignment, Candidate, HostRoom, Placement, Slot, place
from evalfleet.engine.orders import Live
from evalfleet.engine.roster import Roster, host_of
from evalfleet.model import Distribution, Run, Task
from evalfleet.store.base import Claim, Claimed, Store

_MORE = 16  # candidates beyond the free slots, for tasks that do not fit or avoid a worker
_MANY = 200  # while an outage is to be told from bad tasks, variety matters more than the order of the queue
_MOST = 4096
_CROWDED_S = 1.0  # how soon to look again when tasks wait for room that other runs may hold


class Admission:
    """Remembers when there can be something to admit, so that most steps need not ask the store."""

    def __init__(self, store: Store, run: Run, lease_s: float, roster: Roster) -> None:
        self._store = store
        self._run = run
        self._lease_s = lease_s
        self._roster = roster
        self.look_at = 0.0

    def wait_for_room(self) -> None:
        """A claim was refused: others hold what the task asks for."""
        self.look_at = self._store.now() + _CROWDED_S

    def look_again(self, moment: float = 0.0) -> None:
        """A task is or becomes due then."""
        self.look_at = min(self.look_at, moment)

    def free_slots(self, live: Mapping[str, Live], hosts: Iterable[HostInfo]) -> list[Slot]:
        busy = {one.attempt.worker for one in live.values()}
        if self._run.policy.distribution is Distribution.ROUND_ROBIN:
            here = {host.name for host in hosts}
            places = enumerate(self._roster.shards)
            slots = [Slot(worker=name, host=host_of(name), index=index) for index, name in places if name not in busy]
            return [slot for slot in slots if slot.host in here and not self._roster.is_barred(slot.worker)]
        return [
            Slot(worker=name, host=host.name)
            for host in hosts
            for name in self._roster.workers(host.name)
            if name not in busy and not self._roster.is_barred(name)
        ]

    def pick(
        self,
        live: Mapping[str, Live],
        hosts: Sequence[HostInfo],
        most: int,
        history: History,
        fresh_first: bool | None,
    ) -> list[tuple[Task, Assignment]]:
        """Tasks and their workers; at most `most`. Holds those that no host can ever carry."""
        slots = self.free_slots(live, hosts)
        most = min(most, len(slots), self._roster.most - len(live))
        now = self._store.now()
        if most <= 0 or now < self.look_at:
            return []
        limit = len(slots) + (_MORE if fresh_first is None else _MANY)
        while True:
            tasks = self._candidates(slots, limit)
            placement = self._place(
                tasks, slots, {host.name: _room(host, live) for host in hosts}, most, history, fresh_first
            )
            if len(placement.assignments) >= most or len(tasks) < limit or limit >= _MOST:
                break
            limit *= 8  # what stands first does not fit; look whether something behind it does
        by_number = {task.number: task for task in tasks}
        for one in placement.unplaceable:
            self._store.hold(self._run, [by_number[one.task].key], one.reason)
        picked = [(by_number[made.task], made) for made in placement.assignments]
        if placement.unplaceable:
            self.look_at = 0.0
        elif len(picked) < most:
            left = len(tasks) - len(picked)
            due = self._store.next_due(self._run.id)
            self.look_at = min(now + _CROWDED_S if left else inf, inf if due is None else due)
        return picked

    def _place(
        self,
        tasks: list[Task],
        slots: list[Slot],
        hosts: Mapping[str, HostRoom],
        most: int,
        history: History,
        fresh_first: bool | None,
    ) -> Placement:
        candidates = [
            Candidate(number=task.number, requests=task.spec.requests, failed_on=history.failed_on(task.key))
            for task in tasks
        ]
        fixed = self._run.policy.distribution is Distribution.ROUND_ROBIN
        return place(
            candidates,
            slots,
            hosts,
            workers=[name for host in hosts for name in self._roster.workers(host)],
            limit=most,
            shards=len(self._roster.shards) if fixed else None,
            fresh_first=fresh_first,
        )

    def claim(self, task: Task, made: Assignment, host: HostInfo) -> Claimed | None:
        claim = Claim(
            task_number=task.number,
            worker=made.worker,
            host=made.host,
            token=secrets.token_hex(8),
            lease_s=self._lease_s,
            requests=task.spec.requests,
            host_memory_mb=host.memory_mb,
            others=host.others,
        )
        return self._store.claim(self._run, claim)

    def _candidates(self, slots: list[Slot], limit: int) -> list[Task]:
        if self._run.policy.distribution is Distribution.QUEUE:
            return self._store.candidates(self._run.id, limit)
        count = len(self._roster.shards)
        shards = [self._store.candidates(self._run.id, 1, (slot.index, count)) for slot in slots]
        return [task for shard in shards for task in shard]


def _room(host: HostInfo, live: Mapping[str, Live]) -> HostRoom:
    used = sum(one.attempt.requests.memory_mb for one in live.values() if one.attempt.host == host.name)
    free = None if host.memory_mb is None else host.memory_mb - used
    return HostRoom(memory_mb=host.memory_mb, free_memory_mb=free, gpus=host.gpus, free_gpus=tuple(range(host.gpus)))
