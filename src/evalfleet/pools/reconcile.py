"""Reconciles a pool once: as its owner for a while, or by waiting for the process that owns it."""

from __future__ import annotations

import anyio

from evalfleet import config
from evalfleet.errors import NotFound, Owned
from evalfleet.model import PoolHost
from evalfleet.pools.convergence import is_settled
from evalfleet.pools.ownership import Tell, own_pool
from evalfleet.store.store import Store
from evalfleet.store.thread import StoreThread

_LOOK_S = 0.5


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

    Raises:
        Refusal: the cloud refuses all requests.
        InputError: the cloud's settings or packages are missing.
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
