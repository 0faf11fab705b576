"""What the rules of alerts need to know of pools, hosts and what a reaper found, read from the store."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from msgspec import Struct, field

from evalfleet.core.alerts.host_checks import HostFacts, PoolFacts, Reaped
from evalfleet.core.hosts.lifecycle import total_usd
from evalfleet.core.tiers import TierBreaker
from evalfleet.daemon.alerts.run_facts import pulling
from evalfleet.model import BreakerState, DesiredState, Event, HostState, Pool, PoolHost
from evalfleet.pools.kinds import registry
from evalfleet.pools.spending import tiers_usd
from evalfleet.store.reader import StoreReader

_MARGIN_S = 30.0
FOUND = "reap.found"


class Idleness(Struct, kw_only=True):
    """Since when the hosts of pools do nothing. What was before our time is in the store."""

    _since: dict[str, float] = field(default_factory=dict[str, float])
    _uses: dict[str, float] | None = None

    def since(self, store: StoreReader, pool: Pool, hosts: Collection[str], made_at: float) -> float:
        """Since when none of the hosts has an attempt: the last one's end, or when they were made."""
        now = store.now()
        if self._uses is None:
            self._uses = store.hosts.last_uses()
        loads = store.hosts.live_counts()
        if any(loads.get(host) for host in hosts):
            self._since[pool.name] = now
        known = (self._uses.get(host, 0.0) for host in hosts)
        return self._since.setdefault(pool.name, min(now, max(made_at, *known, 0.0)))


def pool_facts(store: StoreReader, pool: Pool, idleness: Idleness, speed: float) -> PoolFacts:
    """One moment of a pool.

    Args:
        idleness: kept between looks.
        speed: cloud seconds per second, of an emulator: the store has prices by our own hours.
    """
    rows = store.hosts.of_pool(pool.name)
    hosts = registry.kind_of(pool).hosts(pool, rows)
    rented = [row for row in rows if row.allocated_since is not None]
    price = sum(row.usd_per_hour for row in rented) / speed if rows else 0.0
    if not rows:
        price = sum(host.price_usd_per_hour for host in hosts)
    made_at = max((row.allocated_since or 0.0 for row in rented), default=pool.created_at)
    now = store.now()
    budget_usd: float | None = pool.settings.get("budget_usd")
    since = idleness.since(store, pool, {host.name for host in hosts}, made_at)
    return PoolFacts(
        now=now,
        name=pool.name,
        idle_s=now - max(since, made_at),
        usd_per_hour=price,
        cost_usd=_cost_usd(store, pool, now) if budget_usd else 0.0,
        budget_usd=budget_usd,
        reason=str(pool.reason.get("message")) if pool.reason else None,
        failed_tiers=_failed_tiers(store, pool),
        unready=tuple((row.name, row.reason or "") for row in rows if _is_unready(row)),
        pulling=pulling(store.events.workers(f"pool:{pool.name}")) if rows else (),
    )


def _cost_usd(store: StoreReader, pool: Pool, now: float) -> float:
    own = total_usd(store.hosts.of_pool(pool.name, gone=True), now)
    return own + tiers_usd(store, pool.name)


def _failed_tiers(store: StoreReader, pool: Pool) -> tuple[tuple[str, str], ...]:
    tiers = ((one.name, TierBreaker.from_json(one.breaker)) for one in store.tiers.of_pool(pool.name))
    return tuple((name, one.reason or "") for name, one in tiers if one.state is not BreakerState.CLOSED)


def _is_unready(row: PoolHost) -> bool:
    """Whether a readiness check failed: the reason begins with its name."""
    wanted = row.desired is DesiredState.RUNNING and row.state is not HostState.GONE
    return (
        wanted and bool(row.readiness_check and row.reason) and str(row.reason).startswith(f"{row.readiness_check}: ")
    )


def host_facts(store: StoreReader, load_s: float, firing: Iterable[tuple[str, str]]) -> list[HostFacts]:
    """How busy hosts were lately.

    Args:
        firing: host and part of disks that are reported as full.
    """
    now = store.now()
    told: dict[str, set[str]] = {}
    for host, part in firing:
        told.setdefault(host, set()).add(part)
    return [
        HostFacts(now=now, name=host, samples=samples, firing=frozenset(told.get(host, ())))
        for host, samples in store.loads.recent(now - load_s - _MARGIN_S).items()
    ]


def reap_facts(events: Iterable[Event], begun: float) -> list[Reaped]:
    """What was found since then."""
    return [
        Reaped(
            number=event.number,
            found=int(event.data.get("found") or 0),
            left=int(event.data.get("left") or 0),
            names=tuple(str(name) for name in event.data.get("names") or ()),
        )
        for event in events
        if event.type == FOUND and event.at >= begun and event.data.get("found")
    ]
