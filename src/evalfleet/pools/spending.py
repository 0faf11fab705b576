"""How much a pool may spend: its own budget, and what the pools that it is a tier of have left of theirs."""

from __future__ import annotations

from msgspec import Struct

from evalfleet.core.hosts.lifecycle import total_usd
from evalfleet.model import DesiredState, Pool, PoolHost
from evalfleet.store.reader import StoreReader


class SpendingLimit(Struct, frozen=True, kw_only=True):
    usd: float | None  # that its machines may cost in all; None: no limit
    pool: str  # whose budget it is
    others_usd_per_hour: float = 0.0  # what other machines spend of the same budget


def spending_limit(store: StoreReader, pool: Pool) -> SpendingLimit:
    """The nearest limit of a pool. A budget of tiers is one over all of them."""
    found = SpendingLimit(usd=pool.settings.get("budget_usd"), pool=pool.name)
    for name in store.tiers.pools_of(pool.name):
        budget: float | None = store.pools.get(name).settings.get("budget_usd")
        if budget is None:
            continue
        rows = {tier.name: store.hosts.of_pool(tier.name, gone=True) for tier in store.tiers.of_pool(name)}
        usd = budget - tiers_usd(store, name) + total_usd(rows[pool.name], store.now())
        if found.usd is None or usd < found.usd:
            others = sum(_rate(row) for tier, some in rows.items() if tier != pool.name for row in some)
            found = SpendingLimit(usd=usd, pool=name, others_usd_per_hour=others)
    return found


def tiers_usd(store: StoreReader, pool: str) -> float:
    """What the machines of all tiers of a pool have cost since they are its tiers."""
    now = store.now()
    return sum(
        total_usd(store.hosts.of_pool(one.name, gone=True), now) - one.base_usd for one in store.tiers.of_pool(pool)
    )


def _rate(row: PoolHost) -> float:
    is_paid = row.gone_at is None and row.desired is DesiredState.RUNNING
    return row.usd_per_hour + row.kept_usd_per_hour if is_paid else 0.0
