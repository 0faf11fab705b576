"""Whether another host could try a task that failed on one: one host alone never makes a task fail for good.

A retry stays away from the hosts where the task failed, as long as another one that has what it asks for serves, however busy that
one is; unless the host has shown by verdicts of other tasks, before and after, that it can work. A task that has no attempt
left and failed on one host only waits in the same way, for one attempt more. While the host of its failure is still busy with
attempts that began later, their ends tell first: a verdict there makes the failure final without another attempt, so that a
second chance is given for a host's sake only.

Fixed shards keep their tasks, so there nothing waits for another host.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from evalfleet.core.attribution import SILENT, History
from evalfleet.core.placement import HostRoom, holds
from evalfleet.core.retry import Fail, Retry, decide, is_spent
from evalfleet.engine.orders import Live
from evalfleet.engine.roster import Roster
from evalfleet.model import Distribution, Kind, Requests, Run, Task, TaskState
from evalfleet.store.base import Store

if TYPE_CHECKING:
    import random


class Elsewhere:
    """Part of the dispatcher, and used like it."""

    def __init__(self, store: Store, run: Run, roster: Roster, history: History, rng: random.Random) -> None:
        self._store = store
        self._run = run
        self._roster = roster
        self._history = history
        self._rng = rng
        self._fixed = run.policy.distribution is Distribution.ROUND_ROBIN
        self.reached: tuple[str, ...] = ()
        self._waiting: set[str] = set()  # tasks that have no attempt left

    def load(self) -> None:
        """Find those that an earlier controller let wait."""
        for key in self._history.open_tasks():
            task = self._store.task(self._run.id, key)
            if task.state is TaskState.QUEUED and self._is_spent(task):
                self._waiting.add(key)

    def others(self, task: Task, host: str) -> list[str]:
        """The hosts besides this one that are there, may get work, and could take such a task."""
        return [
            name
            for name in self.reached
            if name != host and self._roster.serves(name) and self._roster.has_workers(name)
            and self._could_take(name, task.spec.requests)
        ]  # fmt: skip

    def suspects(self) -> list[str]:
        """Hosts that should get no more work, because what fails there at once fails nowhere else."""
        found: list[str] = []
        for host in self.reached:
            against = self._history.streaks.witnesses(host) if self._roster.serves(host) else ()
            if not against:
                continue
            others = set(self.reached).difference(found)
            for one in against:
                others.intersection_update(self.others(self._store.task(self._run.id, one.task), host))
            if self._history.streaks.is_suspect(host, others):
                found.append(host)
        return found

    def is_open(self, task: Task, host: str, kind: Kind) -> bool:
        """Whether a task that has failed on this host just now may still find another one, and failed on no other yet.

        Attempts that were lost or taken back count only for one that fails so again.
        """
        failed = self._history.hosts_of(task.key) if kind in SILENT else self._history.hosts_against(task.key)
        if failed - {host} or self._history.is_vouched(task.key, host):
            return False
        return self._has_other(task.spec.requests, {host})

    @property
    def has_waiting(self) -> bool:
        return bool(self._waiting)

    def wait(self, task: Task) -> None:
        """The task has no attempt left, and gets one more on another host."""
        self._waiting.add(task.key)

    def avoided(self, task: Task) -> frozenset[str]:
        """The hosts that the task must not have now."""
        if self._fixed or not self._history.failed_on(task.key):
            return frozenset()
        spent = self._is_spent(task)
        hosts = self._failed_on(task) if spent else self._history.hosts_against(task.key)
        hosts = frozenset(host for host in hosts if spent or not self._history.is_vouched(task.key, host))
        hosts |= self._roster.alone  # a host on trial gets tasks that never failed
        return hosts if hosts and self._has_other(task.spec.requests, hosts) else frozenset()

    def must_wait(self, task: Task, live: Mapping[str, Live]) -> bool:
        """Whether the host of its failure is about to tell whose fault it was."""
        if task.key not in self._waiting:
            return False
        hosts = self._failed_on(task)
        return any(
            live_one.attempt.host in hosts
            and self._history.may_be_vouched(task.key, live_one.attempt.host)
            and live_one.attempt.claimed_at > self._history.last_failed_at(task.key, live_one.attempt.host)
            for live_one in live.values()
        )

    def conclude(self) -> None:
        """End the wait of tasks whose failure is their own after all, or that no other host can take any more."""
        for key in list(self._waiting):
            task = self._store.task(self._run.id, key)
            if task.state is not TaskState.QUEUED or task.failure is None or not self._is_spent(task):
                self._waiting.discard(key)
                continue
            hosts = self._failed_on(task)
            vouched = len(hosts) == 1 and self._history.is_vouched(key, next(iter(hosts)))
            if not vouched and self._has_other(task.spec.requests, hosts):
                continue
            self._waiting.discard(key)
            self._end(task)

    def _end(self, task: Task) -> None:
        assert task.failure is not None
        decision = decide(
            failure=task.failure, consumed=task.consumed, lost=task.lost, policy=self._run.policy,
            now=self._store.now(), rng=self._rng,
        )  # fmt: skip
        if not isinstance(decision, Retry):
            state = TaskState.FAILED if isinstance(decision, Fail) else TaskState.HELD
            if self._store.conclude(self._run, task.number, state, decision.reason):
                self._history.forget(task.key)

    def _failed_on(self, task: Task) -> frozenset[str]:
        return self._history.hosts_against(task.key) or self._history.hosts_of(task.key)

    def _is_spent(self, task: Task) -> bool:
        return is_spent(task.consumed, task.lost, self._run.policy)

    def _has_other(self, asked: Requests, hosts: Collection[str]) -> bool:
        """Whether a host that is none of these, and may get work, could take such a task. One that was not reached yet could."""
        if self._fixed:
            return False
        return any(
            name not in hosts and self._roster.serves_soon(name) and self._roster.has_workers(name)
            and self._could_take(name, asked)
            for name in self._roster.hosts
        )  # fmt: skip

    def _could_take(self, host: str, asked: Requests) -> bool:
        info = self._roster.info(host)
        if info is None:
            return True
        return holds(HostRoom(memory_mb=info.memory_mb, cards=info.devices), asked, self._run.policy.gpus)
