"""What a worker of a pool costs in an hour, before it has one."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from evalfleet.config import Settings
from evalfleet.errors import EvalfleetError
from evalfleet.layout import Home
from evalfleet.model import Pool
from evalfleet.pools.cloud.protocol import LearnsOfferings
from evalfleet.pools.cloud.purchases import candidates
from evalfleet.pools.kinds.base import PoolKind
from evalfleet.pools.settings import settings_of

if TYPE_CHECKING:
    from evalfleet.pools.kinds.cloud import CloudKind


async def worker_price(settings: Settings, kind: PoolKind, pool: Pool) -> float | None:
    """By the cloud's own hours, of what the pool prefers to buy. None: it is not known."""
    if not kind.creates_machines:
        prices = [host.price_usd_per_hour / max(1, host.slots) for host in kind.hosts(pool, ())]
        return min(prices, default=None)
    wanted = settings_of(pool)
    offers = candidates(wanted.size, wanted.regions, spot=wanted.spot)
    try:
        async with cast("CloudKind", kind).provider.open(settings, Home(settings.home)) as cloud:
            if isinstance(cloud, LearnsOfferings):
                await cloud.learn(offers[0])
            usd = cloud.price(offers[0], wanted.disk_gb).usd_per_hour
    except EvalfleetError:
        return None
    return None if usd is None else usd / wanted.slots
