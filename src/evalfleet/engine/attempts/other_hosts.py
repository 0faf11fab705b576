"""Whether another host could try a task that failed on one: one host alone never makes a task fail for good.

A retry stays away from the hosts where the task failed, as long as another one that has what it asks for serves, however busy that
one is; unless the host has shown by verdicts of other tasks, before and after, that it can work. A task that has no attempt
left and failed on one host only waits in the same way, for one attempt more. While the host of its failure is still busy with
attempts that began later, their ends tell first: a verdict there makes the failure final without another attempt, so that a
second chance is given for a host's sake only.

Fixed shards keep their tasks, so there nothing waits for another host.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from evalfleet.core.failures.attribution import SILENT, History
from evalfleet.core.failures.retry import Fail, Retry, decide, is_spent
from evalfleet.core.placement import HostRoom, holds
from evalfleet.engine.attempts.live import LiveAttempts
from evalfleet.engine.placement.workers import WorkerTable
from evalfleet.model import Distribution, Kind, Requests, Run, Task, TaskState
from evalfleet.store.store import Store

if TYPE_CHECKING:
    import random

_Hosts = tuple[tuple[str, object], ...]


class OtherHosts:
    """Part of the dispatcher; same thread."""

    def __init__(self, store: Store, run: Run, workers: WorkerTable, history: History, rng: random.Random) -> None:
        self._store = store
        self._run = run
        self._workers = workers
        self._history = history
        self._rng = rng
        self._fixed = run.policy.distribution is Distribution.ROUND_ROBIN
        self.reached: tuple[str, ...] = ()
        self._waiting: dict[str, Requests] = {}  # tasks without attempts left, and their requests
        self._seen: _Hosts | None = None  # the hosts at the last look
        self._asked: dict[str, Requests] = {}  # requests of tasks that failed on a host; they never change

    def load(self) -> None:
        """Load the tasks that wait since an earlier controller."""
        for key in self._history.open_tasks():
            task = self._store.tasks.get(self._run.id, key)
            if task.state is TaskState.QUEUED and self._is_spent(task):
                self.wait(task)

    def others(self, task: Task, host: str) -> list[str]:
        """The other hosts that are present, may get work, and could run such a task."""
        return [
            name
            for name in self.reached
            if name != host and self._workers.serves(name) and self._workers.has_workers(name)
            and self._could_take(name, task.spec.requests)
        ]  # fmt: skip

    def suspects(self) -> list[str]:
        """Hosts that should get no more work, because tasks fail there at once and nowhere else."""
        found: list[str] = []
        witnessed = self._history.streaks.witnessed
        may_be = [
            host
            for host in self.reached
            if host in witnessed and self._history.streaks.may_be_suspect(host) and self._workers.serves(host)
        ]
        if not may_be:
            return found  # nearly always, and this is asked at every end
        serving = [name for name in self.reached if self._workers.serves(name) and self._workers.has_workers(name)]
        for host in may_be:
            others = [name for name in serving if name != host and name not in found]
            for asked in {self._asked_by(one.task) for one in self._history.streaks.witnesses(host)}:
                others = [name for name in others if self._could_take(name, asked)]
            if self._history.streaks.is_suspect(host, others):
                found.append(host)
        return found

    def _asked_by(self, key: str) -> Requests:
        if key not in self._asked:
            self._asked[key] = self._store.tasks.get(self._run.id, key).spec.requests
        return self._asked[key]

    def is_open(self, task: Task, host: str, kind: Kind) -> bool:
        """Whether a task that has failed on this host just now may still find another one, and failed on no other yet.

        Attempts that were lost or taken back count only for one that fails so again. What the host shows after this failure
        tells whose it was: `conclude` asks for that, not for what it showed after an earlier one.
        """
        failed = self._history.hosts_of(task.key) if kind in SILENT else self._history.hosts_against(task.key)
        return not failed - {host} and self._has_other(task.spec.requests, {host})

    @property
    def has_news(self) -> bool:
        """Whether some wait, and the hosts that they wait for are not those of the last look."""
        return bool(self._waiting) and self._hosts() != self._seen

    def wait(self, task: Task) -> None:
        """The task has no attempts left, and gets one more on another host."""
        self._waiting[task.key] = task.spec.requests

    def settled(self, key: str) -> None:
        """An attempt of the task has ended, so it no longer waits."""
        self._waiting.pop(key, None)

    def recount(self, key: str) -> None:
        """The task may have attempts left again."""
        if key in self._waiting and not self._is_spent(self._store.tasks.get(self._run.id, key)):
            self.settled(key)

    def avoided(self, task: Task) -> frozenset[str]:
        """The hosts where the task must not start now."""
        if self._fixed or not self._history.failed_on(task.key):
            return frozenset()
        spent = self._is_spent(task)
        hosts = self._failed_on(task.key) if spent else self._history.hosts_against(task.key)
        hosts = frozenset(host for host in hosts if spent or not self._history.is_vouched(task.key, host))
        hosts |= self._workers.alone  # a host on trial gets tasks that never failed
        return hosts if hosts and self._has_other(task.spec.requests, hosts) else frozenset()

    def must_wait(self, task: Task, live: LiveAttempts) -> bool:
        """Whether attempts on the host of its failure will soon show whose fault it was."""
        if task.key not in self._waiting:
            return False
        hosts = self._failed_on(task.key)
        return any(
            one.attempt.claimed_at > self._history.last_failed_at(task.key, host)
            for host in hosts
            if self._history.may_be_vouched(task.key, host)
            for one in live.at(host).values()
        )

    def conclude(self) -> None:
        """End the wait of tasks whose failure is their own, or that no other host can take.

        Only the end of an attempt or a change of the hosts (`has_news`) can cause that. Tasks that go on waiting are not read.
        """
        self._seen = self._hosts() if self._waiting else None
        for key, asked in list(self._waiting.items()):
            hosts = self._failed_on(key)
            vouched = len(hosts) == 1 and self._history.is_vouched(key, next(iter(hosts)))
            if not vouched and self._has_other(asked, hosts):
                continue
            task = self._store.tasks.get(self._run.id, key)
            del self._waiting[key]
            if task.state is TaskState.QUEUED and task.failure is not None and self._is_spent(task):
                self._end(task)

    def _hosts(self) -> _Hosts:
        """The hosts that may get work now or soon, and their resources."""
        return tuple(
            (name, None if (info := self._workers.info(name)) is None else (info.memory_mb, info.devices))
            for name in self._workers.hosts
            if self._workers.serves_soon(name) and self._workers.has_workers(name)
        )

    def _end(self, task: Task) -> None:
        assert task.failure is not None
        decision = decide(
            failure=task.failure, consumed=task.consumed, lost=task.lost, policy=self._run.policy,
            now=self._store.now(), rng=self._rng,
        )  # fmt: skip
        if not isinstance(decision, Retry):
            state = TaskState.FAILED if isinstance(decision, Fail) else TaskState.HELD
            if self._store.tasks.conclude(self._run, task.number, state, decision.reason):
                self._history.forget(task.key)

    def _failed_on(self, key: str) -> frozenset[str]:
        return self._history.hosts_against(key) or self._history.hosts_of(key)

    def _is_spent(self, task: Task) -> bool:
        return is_spent(task.consumed, task.lost, self._run.policy)

    def _has_other(self, asked: Requests, hosts: Collection[str]) -> bool:
        """Whether a host that is none of these, and may get work, could take such a task. One that was not reached yet could."""
        if self._fixed:
            return False
        return any(
            name not in hosts and self._workers.serves_soon(name) and self._workers.has_workers(name)
            and self._could_take(name, asked)
            for name in self._workers.hosts
        )  # fmt: skip

    def _could_take(self, host: str, asked: Requests) -> bool:
        info = self._workers.info(host)
        if info is None:
            return True
        return holds(HostRoom(memory_mb=info.memory_mb, cards=info.devices), asked, self._run.policy.gpus)
