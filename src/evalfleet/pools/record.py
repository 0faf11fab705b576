"""The rows of one pool, as its owner reads and writes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from evalfleet.errors import BackendError
from evalfleet.model import JsonObject, Pool, PoolHost
from evalfleet.store.pools.queries import pool_subject
from evalfleet.store.store import Store
from evalfleet.store.thread import StoreThread

P = ParamSpec("P")
T = TypeVar("T")


class NotOwned(BackendError):
    """The pool has another owner now."""


class PoolRecord:
    """Used in the loop's thread; speaks to the store through its thread."""

    def __init__(self, store: Store, thread: StoreThread, pool: Pool, tell: Callable[[PoolHost], None]) -> None:
        """
        Args:
            pool: as `Pools.take` returned it.
            tell: hears of every host that is written.
        """
        self.store = store
        self.name = pool.name
        self._thread = thread
        self.taken = pool
        self.tell = tell

    async def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call the store."""
        return await self._thread.call(function, *args, **kwargs)

    async def now(self) -> float:
        return await self.call(self.store.now)

    async def pool(self) -> Pool:
        """The pool as it is now. Raises NotOwned, and NotFound where it was deleted."""
        pool = await self.call(self.store.pools.get, self.name)
        if pool.epoch != self.taken.epoch:
            raise self.not_owned()
        return pool

    async def hosts(self, *, gone: bool = False) -> list[PoolHost]:
        return await self.call(self.store.hosts.of_pool, self.name, gone=gone)

    async def host(self, name: str) -> PoolHost:
        """The host as it is now. Raises NotOwned."""
        found = next((row for row in await self.hosts(gone=True) if row.name == name), None)
        if found is None:
            raise NotOwned(f"pool {self.name!r} was deleted by another process; this one stops")
        return found

    async def explain(self, reason: JsonObject | None) -> None:
        """Say why the pool creates no more machines; None: it does again."""
        await self.call(self.store.pools.explain, self.name, reason)

    async def note(self, event: str, data: JsonObject) -> None:
        await self.call(self.store.events.note, pool_subject(self.name), event, data)

    def not_owned(self) -> NotOwned:
        return NotOwned(f"pool {self.name!r} is kept by another process now; this one stops")
