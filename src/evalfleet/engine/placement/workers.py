"""The workers that a run may use: the slots of its hosts, which come and go."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from enum import StrEnum

from evalfleet.hosts.base import HostInfo


class Absence(StrEnum):
    """Why a host that belongs to the run gets no new work."""

    LOST = "lost"  # given up; it may come back
    DRAINING = "draining"  # it has a preemption notice
    QUARANTINED = "quarantined"  # its canary must pass first
    BARRED = "barred"  # its canaries failed, and no more are tried


class WorkerTable:
    """Hosts in their order, each with its workers `host-1`, `host-2`, … A worker keeps its name for as long as its host is there.

    Fixed shards are as many as the workers that the run asked for. Each belongs to a worker, or to none while there are too
    few; a newcomer takes those without a worker.

    Args:
        most: how many workers the run asked for. A host without a limit has as many.
        is_remote: all hosts are other machines than this one; None: where each sets a limit.
    """

    def __init__(
        self, most: int, hosts: Iterable[tuple[str, int | None]] = (), *, is_remote: bool | None = None
    ) -> None:
        self.most = most
        self.draining: frozenset[str] = frozenset()  # hosts that get no new work, as the fleet says
        self._slots: dict[str, int] = {}
        self.version = 0  # rises when hosts or their workers change
        self._names: dict[str, tuple[str, ...]] = {}  # of each host's workers, made when asked for
        self._unlimited: set[str] = set()
        self._is_remote = is_remote
        self._absent: dict[str, set[Absence]] = {}
        self._infos: dict[str, HostInfo] = {}
        self._shards: list[str | None] = [None] * most
        self.alone: frozenset[str] = frozenset()  # hosts that get one task at a time: they are on trial
        self._new: set[str] = set()  # hosts whose first canary is not over
        self.banned: frozenset[str] = frozenset()  # workers and hosts that an operator excluded
        self.add(hosts)

    def resize(self, most: int) -> None:
        """Change the number of the run's workers. Fixed shards stay as they are."""
        self.most = most
        self._slots |= dict.fromkeys(self._unlimited, most)
        self._names.clear()
        self.version += 1

    @property
    def hosts(self) -> Collection[str]:
        return self._slots.keys()

    @property
    def is_remote(self) -> bool:
        return not self._unlimited if self._is_remote is None else self._is_remote

    @property
    def shards(self) -> Sequence[str | None]:
        """The worker that each shard belongs to; None: no worker."""
        return self._shards

    @property
    def orphans(self) -> list[int]:
        """The shards that any worker may serve, because their worker is absent or gets no work."""
        return [i for i, worker in enumerate(self._shards) if worker is None or not self._works(worker)]

    @property
    def known(self) -> list[HostInfo]:
        """The hosts that were reached and may get work, now or later."""
        off = {name for name in self._absent if self._is_off(name)}
        return [info for name, info in self._infos.items() if name not in off]

    def info(self, host: str) -> HostInfo | None:
        """The resources that a host reported; None if it was not reached yet."""
        return self._infos.get(host)

    @property
    def expects(self) -> bool:
        """Whether a host was not reached yet: it may be larger than those that are known."""
        return any(name not in self._infos and not self._is_off(name) for name in self._slots)

    def _works(self, worker: str) -> bool:
        return self.serves(host_of(worker)) and not self.is_banned(worker)

    def is_banned(self, worker: str) -> bool:
        return bool(self.banned) and (worker in self.banned or host_of(worker) in self.banned)

    def slots(self, host: str) -> int:
        """How many workers the host has."""
        return self._slots.get(host, 0)

    def workers(self, host: str) -> Sequence[str]:
        if host not in self._names:
            self._names[host] = tuple(f"{host}-{turn}" for turn in range(1, self.slots(host) + 1))
        return self._names[host]

    def serves(self, host: str) -> bool:
        """Whether the host may get new work."""
        return host in self._slots and host not in self._absent and host not in self.draining

    def serving(self, hosts: Iterable[HostInfo]) -> list[HostInfo]:
        """Those that may get new work, in their order."""
        off = self._absent.keys() | self.draining
        return [host for host in hosts if host.name in self._slots and host.name not in off]

    def serves_soon(self, host: str) -> bool:
        """Whether the host may get new work, now or after its first canary."""
        return self.serves(host) or (host in self._new and self._absent.get(host) == {Absence.QUARANTINED})

    def has_workers(self, host: str) -> bool:
        """Whether an operator has not excluded all its workers."""
        if not self.banned:
            return self.slots(host) > 0
        return any(not self.is_banned(worker) for worker in self.workers(host))

    @property
    def absent(self) -> Collection[str]:
        """The hosts that get no new work for a reason of their own."""
        return self._absent.keys()

    def absences(self, host: str) -> Collection[Absence]:
        return self._absent.get(host, ())

    def _is_off(self, host: str) -> bool:
        return not {Absence.LOST, Absence.BARRED}.isdisjoint(self.absences(host))

    def add(self, hosts: Iterable[tuple[str, int | None]]) -> None:
        given = dict(hosts)
        self._unlimited |= {name for name, slots in given.items() if slots is None}
        sizes = {name: self.most if slots is None else slots for name, slots in given.items()}
        self._slots |= sizes
        self._names.clear()
        self.version += 1
        turns = max(sizes.values(), default=0)
        # One of each host in turn, so that fixed shards are spread over all hosts.
        newcomers = (f"{name}-{turn}" for turn in range(1, turns + 1) for name, slots in sizes.items() if turn <= slots)
        free = [index for index, worker in enumerate(self._shards) if worker is None]
        for index, worker in zip(free, newcomers, strict=False):
            self._shards[index] = worker

    def remove(self, host: str) -> None:
        gone = set(self.workers(host))
        self._shards = [None if worker in gone else worker for worker in self._shards]
        self._slots.pop(host, None)
        self._names.pop(host, None)
        self.version += 1
        self._infos.pop(host, None)
        self._absent.pop(host, None)
        self._new.discard(host)
        self.alone -= {host}
        self._unlimited.discard(host)

    def met(self, info: HostInfo) -> None:
        """A host was reached and reported its resources."""
        if info.name in self._slots:
            self._infos[info.name] = info

    def set_apart(self, host: str, why: Absence, *, is_new: bool = False) -> None:
        """Give it no new work from now on."""
        if host in self._slots:
            self._absent.setdefault(host, set()).add(why)
            if why is Absence.QUARANTINED:
                (self._new.add if is_new else self._new.discard)(host)

    def take_back(self, host: str, why: Absence) -> None:
        """The reason is gone."""
        left = self._absent.get(host, set[Absence]()) - {why}
        if left:
            self._absent[host] = left
        else:
            self._absent.pop(host, None)
        if why is Absence.QUARANTINED:
            self._new.discard(host)


def host_of(worker: str) -> str:
    """Return the host whose slot a worker is."""
    return worker.rpartition("-")[0]
