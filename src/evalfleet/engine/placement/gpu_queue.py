"""Gets GPUs for a run: stores what hosts report, queues tasks that need GPUs, and leaves the queue."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import cast

from evalfleet.core.gpus.allocation import Grant
from evalfleet.hosts.base import HostInfo
from evalfleet.model import Attempt, Failure, JsonObject, Kind, Run, Task
from evalfleet.store.gpus.records import Ask
from evalfleet.store.store import Store

_MOST_TICKETS = 16  # per run: tasks further back in its own queue lose nothing


class GpuQueue:
    """Used by the dispatcher inside its transactions."""

    def __init__(self, store: Store, run: Run) -> None:
        self._store = store
        self._run = run
        self._seen: dict[str, float | None] = {}  # when each host was probed, as stored
        self._waiting: set[int | None] = set()  # tasks that have a ticket
        self.turn: int | None = None  # of the queue, at the last look; None: no task of this run waits

    def has_news(self, hosts: Iterable[HostInfo]) -> bool:
        return any(self._is_new(host) for host in hosts)

    def _is_new(self, host: HostInfo) -> bool:
        if not host.devices and host.name not in self._seen:
            return False
        return host.name not in self._seen or self._seen[host.name] != host.looked_at

    def see(self, hosts: Iterable[HostInfo]) -> None:
        """Store what the hosts last reported, with the time."""
        for host in hosts:
            if self._is_new(host):
                age_s = 0.0 if host.looked_at is None else max(0.0, time.monotonic() - host.looked_at)
                self._store.gpus.see(host.name, host.devices, self._store.now() - age_s)
                self._seen[host.name] = host.looked_at

    def ask(
        self, tasks: Sequence[Task], hosts: Mapping[int, Collection[str]], most: int, known: Iterable[HostInfo]
    ) -> dict[int, Grant]:
        """GPUs for at most `most` tasks, by task number; the first of the others wait in the queue.

        Args:
            tasks: that need GPUs, best first.
            hosts: where each may go now.
            known: all hosts of the run.
        """
        if not tasks or most <= 0:
            self.leave()
            return {}
        others = [attempt for host in known for attempt in host.others]
        asks = self._asks(tasks, hosts, most)
        turn = self._store.gpus.ask(self._run, asks, others)
        self._waiting = {ask.task_number for ask in asks if ask.waits} - turn.grants.keys()
        granted = {number: one for number, one in turn.grants.items() if number is not None}
        waits = len(granted) < min(most, len(tasks))
        self.turn = turn.number if waits else None
        return dict(list(granted.items())[:most])

    def _asks(self, tasks: Sequence[Task], hosts: Mapping[int, Collection[str]], most: int) -> list[Ask]:
        """Waiting tasks keep their places; more may wait if there are workers for them."""
        policy = self._run.policy
        places = min(most, _MOST_TICKETS)
        ordered = sorted(tasks, key=lambda task: task.number not in self._waiting)
        return [
            Ask(
                gpus=task.spec.requests.gpus,
                memory_mb=task.spec.requests.gpu_memory_mb,
                hosts=frozenset(hosts[task.number]),
                task_number=task.number,
                places=policy.gpus,
                pack=policy.gpu_pack,
                waits=turn < places,
            )
            for turn, task in enumerate(ordered)
        ]

    def leave(self) -> None:
        """Leave the queue with all tasks."""
        if self.turn is not None:
            self._store.gpus.ask(self._run, ())
            self.turn, self._waiting = None, set()

    def ended(self, attempt: Attempt, end: JsonObject, failure: Failure | None) -> None:
        """What the end of an attempt says about its GPUs: those that did not become free are not given out."""
        if not attempt.devices:
            return
        for dirty in _objects(end.get("gpus_dirty")):
            self._store.gpus.quarantine(self._run, attempt.host, str(dirty.get("uuid")), _reason(dirty))
        if failure is not None and failure.kind is Kind.GPU_TAKEN:
            named = [str(one.get("uuid")) for one in _objects(end.get("gpus_taken"))]
            self._store.gpus.avoid(attempt.host, named or [device.uuid for device in attempt.devices])


def _objects(value: object) -> list[JsonObject]:
    """A runner may be of another version."""
    rows = cast("list[object]", value) if isinstance(value, list) else []
    return [cast("JsonObject", one) for one in rows if isinstance(one, dict)]


def _reason(dirty: JsonObject) -> str:
    pids = dirty.get("pids") or ()
    who = f" (process {', '.join(map(str, pids))})" if pids else ""
    return f"{dirty.get('reason') or 'it did not become free after an attempt'}{who}"
