"""What is known of a pool without asking its machines."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import convert
from msgspec.structs import replace

from evalfleet.answers.pools import HostRow, PoolCount, PoolFacts, Quota
from evalfleet.core.hosts.lifecycle import cost_usd, metered, total_usd
from evalfleet.model import HostState, Pool, PoolHost
from evalfleet.pools.kinds import registry
from evalfleet.pools.kinds.base import HasMembers
from evalfleet.pools.machine.facts import facts_of
from evalfleet.report.summary import reason_of
from evalfleet.report.tiers import tier_rows
from evalfleet.store.pools.pools import QUOTA_SEEN
from evalfleet.store.pools.queries import pool_subject
from evalfleet.store.reader import StoreReader

_DAY_H = 24


def pool_facts(reader: StoreReader, pool: Pool, speed: float = 1.0) -> PoolFacts:
    """The pool as `pool status --json` shows it. Prices are those of the cloud's own hours.

    Args:
        speed: cloud seconds per second, of an emulator.
    """
    kind = registry.kind_of(pool)
    rows = reader.hosts.of_pool(pool.name)
    loads = reader.hosts.live_counts()
    hosts = [
        HostRow(
            host=host.name,
            workers=host.slots,
            busy=loads.get(host.name, 0),
            price_usd_per_hour=host.price_usd_per_hour / speed,
        )
        for host in kind.hosts(pool, rows)
    ]
    facts = PoolFacts(
        name=pool.name,
        backend=pool.backend,
        creates_machines=kind.creates_machines,
        workers=sum(row.workers for row in hosts),
        created_at=pool.created_at,
        hosts=hosts,
    )
    if isinstance(kind, HasMembers):
        return _tiered(facts, reader, pool)
    return _rented(facts, reader, pool, rows, speed) if kind.creates_machines else facts


def pool_count(facts: PoolFacts) -> PoolCount:
    """The pool as a list shows it."""
    return PoolCount.copy_of(facts, hosts=len(facts.hosts))


def _tiered(facts: PoolFacts, reader: StoreReader, pool: Pool) -> PoolFacts:
    """Adds the tiers, and what their machines cost together."""
    tiers = tier_rows(reader, pool)
    return replace(
        facts,
        tiers=tiers,
        workers=sum(row.capacity for row in tiers),
        budget_usd=pool.settings.get("budget_usd"),
        cost_usd=sum(row.cost_usd or 0.0 for row in tiers),
    )


def _rented(facts: PoolFacts, reader: StoreReader, pool: Pool, rows: Sequence[PoolHost], speed: float) -> PoolFacts:
    """Adds the facts of machines that cost money."""
    now = reader.now()
    tallies = reader.pools.tallies(pool)["hosts"]
    hosts = [
        _rented_host(host, row, now, tallies.get(row.name, {}).get("busy_s", 0.0) / host.workers)
        for host, row in zip(facts.hosts, rows, strict=True)
    ]
    every = [_paid(row) for row in reader.hosts.of_pool(pool.name, gone=True)]
    kept = sum(row.kept_usd_per_hour for row in rows if row.made_at is not None) / speed
    return replace(
        facts,
        hosts=hosts,
        reason=reason_of(pool.reason),
        breaker=_breaker(pool),
        quota=_quota(reader, pool),
        deleting=pool.deleting,
        owner=reader.pools.owner(pool.name),
        budget_usd=pool.settings.get("budget_usd"),
        cost_usd=total_usd(every, now),
        usd_per_hour=kept + sum(row.usd_per_hour for row in rows if _paid(row).allocated_since is not None) / speed,
        kept_usd_per_day=kept * _DAY_H,
    )


def _rented_host(host: HostRow, row: PoolHost, now: float, busy_s: float) -> HostRow:
    facts, paid = facts_of(row), _paid(row)
    return replace(
        host,
        state=row.state,
        desired=row.desired,
        readiness_check=row.readiness_check,
        checks_s=facts.checks_s or None,
        reason=row.reason,
        size=facts.size or None,
        region=facts.region or None,
        spot=facts.spot,
        price=facts.price,
        address=facts.address,
        age_s=now - row.created_at,
        cost_usd=cost_usd(paid, now),
        deadline_at=facts.deadline_at if paid.allocated_since is not None else None,
        idle_share=_idle_share(row, now, busy_s),
        box_requests_per_hour=None if facts.box_costs is None else facts.box_costs.requests_per_hour,
        box_usd_per_hour=None if facts.box_costs is None else facts.box_costs.usd_per_hour,
        vnc=row.state is HostState.READY,
    )


def _paid(row: PoolHost) -> PoolHost:
    """The machine with its meter as the cloud's may stand: one that was ordered and not seen since may run by now."""
    is_ordered = row.state is HostState.CREATING and facts_of(row).operation is not None
    return metered(row, row.updated_at, running=True) if is_ordered else row


def _idle_share(row: PoolHost, now: float, busy_s: float) -> float | None:
    """Of the time that was paid for, how much it had nothing to do; None where it was never allocated."""
    paid_s = row.allocated_s + (max(0.0, now - row.allocated_since) if row.allocated_since is not None else 0.0)
    return None if paid_s <= 0 else min(1.0, max(0.0, 1.0 - busy_s / paid_s))


def _breaker(pool: Pool) -> str | None:
    """Why the pool asks for no more machines, where that is not its own budget."""
    return None if pool.reason is None or pool.reason.get("cause") == "budget" else str(pool.reason["message"])


def _quota(reader: StoreReader, pool: Pool) -> Quota | None:
    """What the pool saw last; the cloud is not asked."""
    seen = reader.events.last(pool_subject(pool.name), QUOTA_SEEN)
    return None if seen is None or seen.at < pool.created_at else convert({**seen.data, "at": seen.at}, Quota)
