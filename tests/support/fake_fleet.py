"""A fleet whose hosts come and go when a test says so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import anyio

from evalfleet.hosts.base import Backend, Departure


class FakeFleet:
    """Implements `Fleet`. What the engine told it is kept for the test to see."""

    def __init__(self, *backends: Backend) -> None:
        self._backends = {backend.name: backend for backend in backends}
        self._departures: dict[str, Departure] = {}
        self._changed = anyio.Event()
        self.wanted: list[int] = []  # each number that differs from the one before
        self.loads: dict[str, int] = {}
        self.blamed: dict[str, str] = {}
        self.given_up: dict[str, str] = {}
        self.is_served = False
        self.drained: set[str] = set()  # hosts that get no more work
        self.parted: bool | None = None  # whether the run was over when it left

    # What a test does

    def add(self, backend: Backend) -> None:
        self._departures.pop(backend.name, None)
        self._backends[backend.name] = backend
        self._changed.set()

    def remove(self, host: str, cause: Literal["preempted", "worker_lost"] | None = "worker_lost") -> None:
        """The host leaves; None: nobody knows yet what became of it."""
        del self._backends[host]
        self.decide(host, cause)

    def decide(self, host: str, cause: Literal["preempted", "worker_lost"] | None) -> None:
        """Say what became of a host that left."""
        if cause is not None:
            self._departures[host] = Departure(cause=cause, message=f"host {host} left the fleet")
        self._changed.set()

    # `Fleet`

    def backends(self) -> Sequence[Backend]:
        self._changed = anyio.Event()
        return list(self._backends.values())

    def draining(self) -> set[str]:
        return self.drained

    def waits_for(self) -> str:
        return "the test has given it none"

    async def part(self, *, over: bool) -> None:
        self.parted = over

    def departure(self, host: str) -> Departure | None:
        return self._departures.get(host)

    async def changed(self) -> None:
        await self._changed.wait()

    async def serve(self) -> None:
        self.is_served = True
        try:
            await anyio.sleep_forever()
        finally:
            self.is_served = False

    def want(self, workers: int) -> None:
        if self.wanted[-1:] != [workers]:
            self.wanted.append(workers)

    def busy(self, host: str, attempts: int) -> None:
        self.loads[host] = attempts

    def blame(self, host: str, reason: str) -> None:
        self.blamed[host] = reason

    def give_up(self, hosts: Mapping[str, str]) -> None:
        self.given_up = dict(hosts)
