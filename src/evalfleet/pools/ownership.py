"""Becoming the owner of a pool, with all that keeping it needs opened; and asking whoever is."""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from functools import partial

from evalfleet import config
from evalfleet.azure import clients
from evalfleet.azure import settings as azure_settings
from evalfleet.azure.images import Images
from evalfleet.azure.vms import Vms
from evalfleet.hosts.azure_pool import settings_of
from evalfleet.layout import Home
from evalfleet.model import PoolHost
from evalfleet.pools.commands import require_place
from evalfleet.pools.controller import PoolController
from evalfleet.pools.login_key import login_key
from evalfleet.pools.machine.context import PoolContext
from evalfleet.store.base.store import Store
from evalfleet.store.thread import Clerk

Tell = Callable[[PoolHost], None]


@asynccontextmanager
async def own_pool(
    settings: config.Settings, store: Store, clerk: Clerk, name: str, process: str, tell: Tell = lambda _: None
) -> AsyncGenerator[PoolController]:
    """Own the pool inside the block.

    Raises:
        Owned: another process keeps it.
        NotFound: there is no such pool (any more).
        InputError: the cloud's settings or packages are missing, or name another place than the pool's.
    """
    azure = azure_settings.of(settings)
    require_place(await clerk.call(partial(store.pool, name)), azure)
    home = Home(settings.home)
    login = login_key(home)
    async with clients.opened(azure) as opened:
        pool = await clerk.call(partial(store.take_pool, name, process))
        try:
            wanted = settings_of(pool)
            identity = await clerk.call(store.identity)
            context = PoolContext(
                store=store,
                clerk=clerk,
                home=home,
                settings=settings,
                pool=pool,
                wanted=wanted,
                azure=azure,
                vms=Vms(opened),
                login=login,
                owner=identity.label,
                labels=identity.labels,
                legacy=identity.legacy,
                images=Images(opened),
                tell=tell,
                rng=random.Random(),
            )
            yield PoolController(context)
        finally:
            await clerk.finish(partial(store.leave_pool, pool))
