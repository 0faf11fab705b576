"""How the alerts use the store of their home: they read, write and say what went wrong, in whatever process they run."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

import anyio
import anyio.to_thread
from msgspec import Struct

from evalfleet.store.open import open_store
from evalfleet.store.reader import StoreReader
from evalfleet.store.store import Store

T = TypeVar("T")

LEASE_S = 30.0  # longer than one message may take


class Read(Protocol):
    def __call__(self, function: Callable[[StoreReader], T], /) -> Awaitable[T]: ...


class Write(Protocol):
    def __call__(self, function: Callable[[Store], T], /) -> Awaitable[T]: ...


class Access(Struct, frozen=True, kw_only=True):
    """Used in the event loop's thread. What is called runs in other threads."""

    read: Read
    write: Write
    notice: Callable[[str], None]


class OwnStore:
    """A connection of its own, opened when it is first needed, and used by one thread at a time."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._limiter = anyio.CapacityLimiter(1)
        self._store: Store | None = None

    async def call(self, function: Callable[[Any], T], /) -> T:
        return await anyio.to_thread.run_sync(partial(self._call, function), limiter=self._limiter)

    async def close(self) -> None:
        if self._store is not None:
            await anyio.to_thread.run_sync(self._store.close, limiter=self._limiter)

    def _call(self, function: Callable[[Store], T]) -> T:
        self._store = self._store or open_store(self._home)
        return function(self._store)


class Claim:
    """The claim to send alerts and to act on them. The store gives it to one service of all processes of a home, for the time
    of a lease. Used in the event loop's thread."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._token = uuid.uuid4().hex

    async def hold(self) -> bool:
        """Take the claim, or renew it. False: another service has it."""
        return await self._access.write(lambda store: store.daemon.claim_alerts(self._token, LEASE_S))

    async def release(self) -> None:
        await self._access.write(lambda store: store.daemon.release_alerts(self._token))
