"""The placement of waiting tasks on free slots.

A pull queue: tasks come in the order of the store (longest expected first), and each takes a free slot of a host that
has the memory that it asks for; tasks that do not fit are passed by. Slots are taken from one host after the other. A task that
asks for GPUs goes to the host where `core.gpus` granted it some, and nowhere else.

A task that failed before goes to a worker where it has not failed. If only such workers are free that it failed on, it
waits as long as there is other work for them, and takes one if there is none. Where it failed on every worker that
there is, it has no preference. From the hosts that it shall `avoid` it stays away, however long it waits.

A task that may have killed its runner goes to a host where nothing runs, after all others, and nothing else goes there with it.

Round-robin is for people who need fixed shards: task `i` belongs to worker `(i - 1) mod N`, always.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from math import inf

from msgspec import Struct

from evalfleet.core.gpus.allocation import never
from evalfleet.core.gpus.cards import Card
from evalfleet.model import Requests

_NOTHING = Requests()


class Candidate(Struct, frozen=True, kw_only=True):
    """A waiting task that may start now."""

    number: int
    requests: Requests = _NOTHING
    failed_on: frozenset[str] = frozenset()  # workers
    avoid: frozenset[str] = frozenset()  # hosts that it must not have
    alone: bool = False  # it needs a host of its own
    host: str | None = None  # where its GPUs are; of a task that asks for some and has none yet None


class Slot(Struct, frozen=True, kw_only=True):
    """A free worker. `index` is its place among the workers of the run, from 0; only round-robin looks at it."""

    worker: str
    host: str
    index: int = 0


class HostRoom(Struct, frozen=True, kw_only=True):
    """What a host has and what is free of it. Memory None: unknown, and then not checked."""

    memory_mb: int | None = None
    free_memory_mb: int | None = None
    cards: tuple[Card, ...] = ()
    is_idle: bool = True  # none of the run's attempts is there


class Assignment(Struct, frozen=True, kw_only=True):
    task: int
    worker: str
    host: str


class Unplaceable(Struct, frozen=True, kw_only=True):
    task: int
    reason: str


class Placement(Struct, frozen=True, kw_only=True):
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
    places: Sequence[int] = (),
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
        places: which GPUs of a host tasks may have, by index; (): all.
    """
    found = _Room(slots, hosts)
    too_large, placeable = split(tasks, hosts, places)
    placeable = [task for task in placeable if task.host is not None or not task.requests.gpus]
    if fresh_first is not None:
        placeable.sort(key=lambda task: bool(task.failed_on) is fresh_first)
    if any(task.alone for task in placeable):
        placeable.sort(key=lambda task: task.alone)
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
        if slot and task.host in (None, slot.host) and room.takes(slot.host, task):
            made.append(room.use(task, slot.host, slot.worker))
            del free[slot.index]
    return made


def split(
    tasks: Sequence[Candidate], hosts: Mapping[str, HostRoom], places: Sequence[int] = ()
) -> tuple[list[Unplaceable], list[Candidate]]:
    """Tasks that no host could ever hold, and the others. With no host at all, all may wait for one."""
    answers: dict[Requests, bool] = {_NOTHING: True}
    too_large: list[Unplaceable] = []
    others: list[Candidate] = []
    for task in tasks:
        asked = task.requests
        if asked not in answers:
            answers[asked] = not hosts or any(holds(host, asked, places) for host in hosts.values())
        if answers[asked]:
            others.append(task)
        else:
            too_large.append(Unplaceable(task=task.number, reason=_reason(asked, hosts, places)))
    return too_large, others


def holds(host: HostRoom, asked: Requests, places: Sequence[int] = ()) -> bool:
    """Whether the host has what is asked for, were it free."""
    if host.memory_mb is not None and asked.memory_mb > host.memory_mb:
        return False
    return not asked.gpus or never(asked, places, {"": host.cards}) is None


def _reason(asked: Requests, hosts: Mapping[str, HostRoom], places: Sequence[int]) -> str:
    no_gpus = never(asked, places, {name: room.cards for name, room in hosts.items()}) if asked.gpus else None
    if no_gpus is not None:
        return no_gpus
    memory = max((host.memory_mb or 0 for host in hosts.values()), default=0)
    besides = f" beside {asked.gpus} GPU{'s' * (asked.gpus > 1)}" if asked.gpus else ""
    return f"asks for {asked.memory_mb} MB of memory{besides}; no host has that much (the largest: {memory} MB)"


class _Room:
    """What is left while one placement is made. Room only shrinks, so a request that fitted nowhere never will."""

    def __init__(self, slots: Sequence[Slot], hosts: Mapping[str, HostRoom]) -> None:
        self._free: dict[str, list[str]] = {}
        for slot in slots:
            if slot.host in hosts:
                self._free.setdefault(slot.host, []).append(slot.worker)
        self._memory = {name: _free_memory(room) for name, room in hosts.items()}
        self._idle = {name for name, room in hosts.items() if room.is_idle}
        self._refused_mb = inf  # so much memory is nowhere
        self._avoided: set[tuple[int, bool, frozenset[str], frozenset[str]]] = set()
        memories = self._memory.values()
        self._most_memory = None if None in memories else max((m for m in memories if m is not None), default=0)

    @property
    def is_full(self) -> bool:
        return not self._free

    def fits(self, host: str, asked: Requests) -> bool:
        if host not in self._memory:
            return False
        memory = self._memory[host]
        return memory is None or asked.memory_mb <= memory

    def takes(self, host: str, task: Candidate) -> bool:
        """Whether the host, which has a free slot, may have the task."""
        if host in task.avoid or (task.alone and host not in self._idle):
            return False
        return host in self._free and self.fits(host, task.requests)

    def take(self, task: Candidate, avoid: frozenset[str]) -> Assignment | None:
        if task.host is not None:
            return self._take_on(task, task.host, avoid)
        asked_mb = task.requests.memory_mb
        if asked_mb >= self._refused_mb or (self._most_memory is not None and asked_mb > self._most_memory):
            return None
        wanted = asked_mb, task.alone, avoid, task.avoid
        if wanted in self._avoided:
            return None
        fitted = False
        for host in self._free:
            if self.fits(host, task.requests):
                fitted = True
                taken = self._take_on(task, host, avoid)
                if taken is not None:
                    return taken
        if fitted:
            self._avoided.add(wanted)
        else:
            self._refused_mb = asked_mb
        return None

    def _take_on(self, task: Candidate, host: str, avoid: frozenset[str]) -> Assignment | None:
        if not self.takes(host, task):
            return None
        worker = next((name for name in self._free.get(host, ()) if name not in avoid), None)
        return None if worker is None else self.use(task, host, worker)

    def use(self, task: Candidate, host: str, worker: str) -> Assignment:
        workers = self._free.pop(host)
        workers.remove(worker)
        if workers and not task.alone:
            self._free[host] = workers  # to the end: the next task looks at another host first
        self._idle.discard(host)
        memory = self._memory[host]
        if memory is not None:
            self._memory[host] = memory - task.requests.memory_mb
        return Assignment(task=task.number, worker=worker, host=host)


def _free_memory(room: HostRoom) -> int | None:
    return room.memory_mb if room.free_memory_mb is None else room.free_memory_mb
