"""Which hosts a run has, and which of them get new work: hosts join, leave, stop answering and answer again."""

from __future__ import annotations

from evalfleet.engine.hosts.canaries import Canaries
from evalfleet.engine.hosts.reachability import Reachability
from evalfleet.engine.placement.admission import Admission
from evalfleet.engine.placement.workers import Absence, WorkerTable
from evalfleet.hosts.base import CanarySpec
from evalfleet.store.store import Store


class HostMembership:
    """The part of the dispatcher that the hosts' connections call. Used by the dispatcher's thread."""

    def __init__(
        self, store: Store, workers: WorkerTable, canaries: Canaries, admission: Admission, reachability: Reachability
    ) -> None:
        self._store = store
        self._workers = workers
        self._canaries = canaries
        self._admission = admission
        self._reachability = reachability

    @property
    def expects(self) -> bool:
        return self._reachability.expects

    def expect(self, hosts: bool) -> None:
        """Whether the fleet may have more hosts soon: a run without one waits, and does not pause."""
        self._reachability.expects = hosts

    def prove(self, host: str, canary: CanarySpec | None) -> None:
        """A host that the run starts with gets no work before its canary has passed, if it has one."""
        self._canaries.joined(host, canary)

    def joined(self, host: str, slots: int | None, canary: CanarySpec | None) -> None:
        """The fleet has a new host."""
        self._workers.add([(host, slots)])
        self._canaries.joined(host, canary)
        self._reachability.joined(host, self._store.now())

    def left(self, host: str) -> None:
        """The fleet no longer has this host. Its live attempts stay live until it is known how they ended."""
        self._workers.remove(host)
        self._canaries.left(host)
        self._reachability.left(host)
        self._admission.freed()  # other hosts may serve its shards

    def unreached(self, host: str, message: str) -> float | None:
        """A host could not be reached. Returns after how many seconds to try again; None: the run must pause."""
        return self._reachability.failed(host, message, self._store.now())

    def returned(self, host: str) -> None:
        """A host answers again."""
        self._reachability.returned(host)
        self._workers.take_back(host, Absence.LOST)

    def set_apart(self, host: str, why: Absence) -> None:
        """Give a host no new work; what it has goes on."""
        self._workers.set_apart(host, why)
        self._admission.freed()  # other hosts may serve its shards

    def take_back(self, host: str, why: Absence) -> None:
        """That reason to give a host no work is gone."""
        self._workers.take_back(host, why)
