"""Which waiting task goes to which free slot.

A pull queue: tasks come in the order of the store (longest expected first), and each takes a free slot of a host that
has the memory and GPUs it asks for; tasks that do not fit are passed by. Slots are taken from one host after the other.

A task that failed before goes to a worker where it has not failed. If only such workers are free that it failed on, it
waits as long as there is other work for them, and takes one if there is none. Where it failed on every worker that
there is, it has no preference.

Round-robin is for people who need fixed shards: task `i` belongs to worker `(i - 1) mod N`, always.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from evalfleet.model import Requests

_NOTHING = Requests()


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A task that waits and may start now."""

    number: int
    requests: Requests = _NOTHING
    failed_on: frozenset[str] = frozenset()  # workers


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """A free worker. `index` is its place among the workers of the run, from 0; only round-robin looks at it."""

    worker: str
    host: str
    index: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class HostRoom:
    """What a host has and what is free of it. Memory None: unknown, and then not checked."""

    memory_mb: int | None = None
    free_memory_mb: int | None = None
    gpus: int = 0
    free_gpus: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    task: int
    worker: str
    host: str
    gpus: tuple[int, ...] = ()  # the leased devices


@dataclass(frozen=True, slots=True, kw_only=True)
class Unplaceable:
    task: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    assignments: tuple[Assignment, ...] = ()
    unplaceable: tuple[Unplaceable, ...] = ()  # ask for more than any host has in total


def place(
    tasks: Sequence[Candidate],
    slots: Sequence[Slot],
    hosts: Mapping[str, HostRoom],
    *,
    workers: Collection[str] = (),
    limit: int | None = None,
    shards: int | None = None,
    fresh_first: bool | None = None,
) -> Placement:
    """Assigns tasks to free slots; every task and every slot is used at most once.

    Args:
        tasks: in order of preference.
        slots: the free workers. A slot of a host that is not in `hosts` is not used.
        hosts: all hosts of the pool, also those without a free slot.
        workers: all workers that could become free, for tasks that failed on some.
        limit: most assignments to make (what breaker, budget and `--workers` allow).
        shards: the N of round-robin; None is the pull queue.
        fresh_first: True: tasks that never failed come first; False: they come last; None: as given.
    """
    found = _Room(slots, hosts)
    too_large, placeable = _split(tasks, hosts)
    if fresh_first is not None:
        placeable.sort(key=lambda task: bool(task.failed_on) is fresh_first)
    most = len(slots) if limit is None else max(0, limit)
    if shards is not None:
        made = _round_robin(placeable, slots, found, most, shards)
    else:
        made = _pull(placeable, found, most, frozenset(workers) | {slot.worker for slot in slots})
    return Placement(assignments=tuple(made), unplaceable=tuple(too_large))


def _pull(tasks: Iterable[Candidate], room: _Room, most: int, workers: frozenset[str]) -> list[Assignment]:
    made: list[Assignment] = []
    waiting: list[Candidate] = []
    nothing: frozenset[str] = frozenset()
    for task in tasks:
        if len(made) >= most or room.is_full:
            break
        avoid = nothing if task.failed_on >= workers else task.failed_on
        taken = room.take(task, avoid)
        if taken:
            made.append(taken)
        elif avoid:
            waiting.append(task)
    for task in waiting:
        if len(made) >= most or room.is_full:
            break
        taken = room.take(task, nothing)
        if taken:
            made.append(taken)
    return made


def _round_robin(
    tasks: Iterable[Candidate], slots: Sequence[Slot], room: _Room, most: int, shards: int
) -> list[Assignment]:
    free = {slot.index: slot for slot in slots}
    made: list[Assignment] = []
    for task in tasks:
        if len(made) >= most or not free:
            break
        slot = free.get((task.number - 1) % shards)
        if slot and room.fits(slot.host, task.requests):
            made.append(room.use(task, slot.host, slot.worker))
            del free[slot.index]
    return made


def _split(tasks: Sequence[Candidate], hosts: Mapping[str, HostRoom]) -> tuple[list[Unplaceable], list[Candidate]]:
    """Tasks that no host could ever hold, and the others. With no host at all, all may wait for one."""
    answers: dict[Requests, bool] = {_NOTHING: True}
    too_large: list[Unplaceable] = []
    others: list[Candidate] = []
    for task in tasks:
        asked = task.requests
        if asked not in answers:
            answers[asked] = not hosts or any(_holds(host, asked) for host in hosts.values())
        if answers[asked]:
            others.append(task)
        else:
            too_large.append(Unplaceable(task=task.number, reason=_reason(asked, hosts)))
    return too_large, others


def _holds(host: HostRoom, asked: Requests) -> bool:
    return asked.gpus <= host.gpus and (host.memory_mb is None or asked.memory_mb <= host.memory_mb)


def _reason(asked: Requests, hosts: Mapping[str, HostRoom]) -> str:
    memory = max((host.memory_mb or 0 for host in hosts.values()), default=0)
    gpus = max((host.gpus for host in hosts.values()), default=0)
    parts = [(asked.memory_mb, f"{asked.memory_mb} MB of memory"), (asked.gpus, f"{asked.gpus} GPUs")]
    wanted = " and ".join(words for amount, words in parts if amount)
    return f"asks for {wanted}; no host has that much (the largest: {memory} MB, {gpus} GPUs)"


class _Room:
    """What is left while one placement is made. Room only shrinks, so a request that fitted nowhere never will."""

    def __init__(self, slots: Sequence[Slot], hosts: Mapping[str, HostRoom]) -> None:
        self._free: dict[str, list[str]] = {}
        for slot in slots:
            if slot.host in hosts:
                self._free.setdefault(slot.host, []).append(slot.worker)
        self._memory = {name: _free_memory(room) for name, room in hosts.items()}
        self._gpus = {name: list(room.free_gpus) for name, room in hosts.items()}
        self._refused: list[Requests] = []
        self._avoided: set[tuple[Requests, frozenset[str]]] = set()
        self._most_gpus = max((len(devices) for devices in self._gpus.values()), default=0)
        memories = self._memory.values()
        self._most_memory = None if None in memories else max((m for m in memories if m is not None), default=0)

    @property
    def is_full(self) -> bool:
        return not self._free

    def fits(self, host: str, asked: Requests) -> bool:
        if host not in self._memory or asked.gpus > len(self._gpus[host]):
            return False
        memory = self._memory[host]
        return memory is None or asked.memory_mb <= memory

    def take(self, task: Candidate, avoid: frozenset[str]) -> Assignment | None:
        asked = task.requests
        if asked.gpus > self._most_gpus or (self._most_memory is not None and asked.memory_mb > self._most_memory):
            return None
        if (asked, avoid) in self._avoided or any(
            asked.gpus >= no.gpus and asked.memory_mb >= no.memory_mb for no in self._refused
        ):
            return None
        fitted = False
        for host, workers in self._free.items():
            if self.fits(host, asked):
                fitted = True
                worker = next((name for name in workers if name not in avoid), None)
                if worker is not None:
                    return self.use(task, host, worker)
        if fitted:
            self._avoided.add((asked, avoid))
        else:
            self._refused.append(asked)
        return None

    def use(self, task: Candidate, host: str, worker: str) -> Assignment:
        workers = self._free.pop(host)
        workers.remove(worker)
        if workers:
            self._free[host] = workers  # to the end: the next task looks at another host first
        memory = self._memory[host]
        if memory is not None:
            self._memory[host] = memory - task.requests.memory_mb
        devices = self._gpus[host]
        leased, self._gpus[host] = devices[: task.requests.gpus], devices[task.requests.gpus :]
        return Assignment(task=task.number, worker=worker, host=host, gpus=tuple(leased))


def _free_memory(room: HostRoom) -> int | None:
    return room.memory_mb if room.free_memory_mb is None else room.free_memory_mb
