"""Reconciles a pool once: as its owner for a while, or by waiting for the process that owns it. It has one owner at a time."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import anyio

from evalfleet import config
from evalfleet.errors import NotFound, Owned
from evalfleet.layout import Home
from evalfleet.model import PoolHost
from evalfleet.pools.cloud.waits import waiting_for
from evalfleet.pools.context import PoolContext
from evalfleet.pools.controller import PoolController
from evalfleet.pools.kinds.registry import cloud_of
from evalfleet.pools.record import PoolRecord
from evalfleet.pools.settings import is_settled
from evalfleet.store.store import Store
from evalfleet.store.thread import StoreThread

Tell = Callable[[PoolHost], None]
_LOOK_S = 0.5


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

    Raises Owned where another process owns it; NotFound where there is no such pool (any more); InputError where the cloud's
    settings or packages are missing, or name another account than the pool's.
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


async def reconcile_pool(
    settings: config.Settings,
    store: Store,
    name: str,
    process: str,
    tell: Tell,
    *,
    again: bool = False,
    creates: bool = True,
    waits: bool = True,
) -> None:
    """Return when the machines of the pool are what they should be, or cannot be now: `Pool.reason` says why not.

    Args:
        again: let machines in quarantine prove themselves again, where we are the owner.
        creates: whether machines that are missing are created, where we are the owner: who stops or deletes buys nothing.
        waits: also for machines that are to go and have work, where we are the owner.

    Raises Refusal where the cloud refuses all requests; InputError where the cloud's settings or packages are missing.
    """
    thread = StoreThread()
    while True:
        try:
            async with own_pool(settings, store, thread, name, process, tell, creates=creates) as controller:
                if again:
                    await controller.retry_quarantined()
                await controller.settle(waits=waits)
                return
        except NotFound:
            return  # somebody else saw to it that it is gone
        except Owned:
            if await _waited(store, thread, name, tell):
                return


async def _waited(store: Store, thread: StoreThread, name: str, tell: Tell) -> bool:
    """Wait while another process does it. False: that process has ended."""
    seen: dict[str, PoolHost] = {}
    waiting_for(f"another process keeps pool {name}, and does this; waiting for it")
    while await thread.call(store.pools.owner, name) is not None:
        try:
            pool = await thread.call(store.pools.get, name)
        except NotFound:
            return True
        hosts = await thread.call(store.hosts.of_pool, name)
        for host in hosts:
            if seen.get(host.name) != host:
                seen[host.name] = host
                tell(host)
        if is_settled(pool, hosts):
            return True
        await anyio.sleep(_LOOK_S)
    return False
