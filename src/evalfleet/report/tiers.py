"""The tiers of a pool, as `pool status` shows them: which are used, and why."""

from __future__ import annotations

from statistics import median

from evalfleet.answers.pools import TierRow
from evalfleet.core.hosts.lifecycle import total_usd
from evalfleet.core.tiers import Prefer, TierBreaker
from evalfleet.model import BreakerState, HostState, Pool, StoredTier
from evalfleet.pools.kinds import registry
from evalfleet.pools.kinds.tiers import tier_settings
from evalfleet.pools.settings import settings_of
from evalfleet.store.reader import StoreReader


def tier_rows(reader: StoreReader, pool: Pool) -> list[TierRow]:
    """The most preferred first."""
    found = [_row(reader, tier) for tier in reader.tiers.of_pool(pool.name)]
    if tier_settings(pool).prefer is Prefer.CHEAPEST:
        found.sort(key=lambda row: (row.usd_per_hour is None, row.usd_per_hour or 0.0))
    return found


def _row(reader: StoreReader, tier: StoredTier) -> TierRow:
    member = reader.pools.get(tier.name)
    kind = registry.kind_of(member)
    rows = reader.hosts.of_pool(tier.name)
    hosts = kind.hosts(member, rows)
    loads = reader.hosts.live_counts()
    breaker = TierBreaker.from_json(tier.breaker)
    demand = [one for one in reader.tiers.demand(tier=tier.name) if one.driven]
    starts = reader.tiers.starts(tier.name)
    took = [seconds for seconds in starts if seconds is not None]
    capacity = kind.slots(member)
    is_rented = kind.creates_machines
    ready = sum(row.state is HostState.READY for row in rows) * settings_of(member).slots if is_rented else capacity
    every = reader.hosts.of_pool(tier.name, gone=True)
    return TierRow(
        tier=tier.name,
        backend=member.backend,
        state=str(breaker.state),
        why=_why(breaker, [one.why for one in demand]),
        since=breaker.since,
        retry_at=breaker.retry_at,
        capacity=capacity,
        ready=ready,
        busy=sum(loads.get(host.name, 0) for host in hosts),
        wanted=sum(one.wanted for one in demand),
        usd_per_hour=tier.usd_per_hour if is_rented else min((one.price_usd_per_hour for one in hosts), default=None),
        cost_usd=total_usd(every, reader.now()) - tier.base_usd if is_rented else None,
        starts=len(starts),
        start_rate=len(took) / len(starts) if starts else None,
        ready_s=median(took) if took else None,
    )


def _why(breaker: TierBreaker, told: list[str]) -> str:
    """What the runs say that use the pool; they may differ."""
    if told:
        return "; ".join(dict.fromkeys(told))
    if breaker.state is BreakerState.CLOSED:
        return "not needed: no run uses the pool"
    return f"not used: {breaker.reason}"
