"""A carrier that does what networks and services do: it is slow, fails before or after the deed, repeats it, and changes the order."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from random import Random
from typing import TypeVar

import anyio

from evalfleet.hosts.mailbox.carrier import Carrier
from evalfleet.pilot.carrier import CarrierError, Traffic
from evalfleet.pilot.pace import Pace

T = TypeVar("T")


class BadCarrier:
    """Implements `Carrier` over another one. The same seed makes the same choices."""

    def __init__(self, inner: Carrier, seed: int) -> None:
        self._inner = inner
        self._rng = Random(seed)
        self._later: list[Callable[[], Awaitable[None]]] = []  # puts that take effect at one of the next calls
        self.failed = self.doubled = self.delayed = 0

    @property
    def pace(self) -> Pace:
        return self._inner.pace

    @property
    def traffic(self) -> Traffic:
        return self._inner.traffic

    async def put(self, name: str, data: bytes, *, new: bool = False) -> None:
        async def put() -> None:
            await self._inner.put(name, data, new=new)

        async def again() -> None:
            with suppress(FileExistsError):
                await put()

        if self._chance(0.2):
            self.doubled += 1
            self._later.append(again)
        if not new and self._chance(0.2):
            self.delayed += 1
            self._later.append(put)
            return
        await self._do(put)

    async def get(self, name: str, start: int = 0, limit: int | None = None) -> bytes | None:
        return await self._do(partial(self._inner.get, name, start, limit))

    async def list(self, prefix: str) -> Sequence[tuple[str, int]]:
        return await self._do(partial(self._inner.list, prefix))

    async def delete(self, names: Iterable[str]) -> None:
        await self._do(partial(self._inner.delete, [*names]))

    async def _do(self, deed: Callable[[], Awaitable[T]]) -> T:
        if self._chance(0.1):
            await anyio.sleep(self._rng.uniform(0, 0.05))
        while self._later and self._chance(0.5):
            await self._later.pop(self._rng.randrange(len(self._later)))()
        if self._chance(0.05):
            self.failed += 1
            raise CarrierError("the carrier failed")
        done = await deed()
        if self._chance(0.05):
            self.failed += 1
            raise CarrierError("the carrier failed after the deed")
        return done

    def _chance(self, share: float) -> bool:
        return self._rng.random() < share
