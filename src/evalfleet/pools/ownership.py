"""Owning a pool: one process at a time reconciles it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

from evalfleet import config
from evalfleet.layout import Home
from evalfleet.model import PoolHost
from evalfleet.pools.context import PoolContext
from evalfleet.pools.controller import PoolController
from evalfleet.pools.kinds.registry import cloud_of
from evalfleet.pools.record import PoolRecord
from evalfleet.store.store import Store
from evalfleet.store.thread import StoreThread

Tell = Callable[[PoolHost], None]


@asynccontextmanager
async def own_pool(
    settings: config.Settings,
    store: Store,
    thread: StoreThread,
    name: str,
    process: str,
    tell: Tell = lambda _: None,
    *,
    creates: bool = True,
    stopped_at: float | None = None,
) -> AsyncGenerator[PoolController]:
    """Own the pool inside the block; `creates` and `stopped_at` as in `PoolController`.

    Raises:
        Owned: another process owns it.
        NotFound: there is no such pool (any more).
        InputError: the cloud's settings or packages are missing, or name another account than the pool's.
    """
    pool = await thread.call(store.pools.get, name)
    kind = cloud_of(pool)
    kind.require_account(pool, settings)
    async with kind.provider.open(settings, Home(settings.home)) as cloud:
        taken = await thread.call(store.pools.take, name, process)
        try:
            record = PoolRecord(store, thread, taken, tell)
            context = PoolContext(record, cloud, kind.provider, settings, await thread.call(store.home.identity))
            await context.refresh()
            yield PoolController(context, creates=creates, stopped_at=stopped_at)
        finally:
            await thread.finish(store.pools.leave, taken)
