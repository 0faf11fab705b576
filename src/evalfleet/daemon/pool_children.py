"""Controllers of pools: `serve` starts one for every pool that differs from its desired state and has no owner.

Such a process is `evalfleet pool settle NAME`. It takes the pool, brings it to its desired state and leaves it, so that a run that uses
the pool can keep it, and unused machines stop at their deadline as they would without a server. It outlives a server that ends or is
killed: money is at stake, and what was asked for is carried through. The next server waits for it.
"""

from __future__ import annotations

from collections.abc import Collection

from msgspec import Struct

from evalfleet.core.hosts.lifecycle import total_usd
from evalfleet.daemon.supervisor import Child, Next
from evalfleet.model import DesiredState, Pool
from evalfleet.pools.kinds.registry import creates_machines
from evalfleet.pools.settings import is_settled
from evalfleet.pools.spending import spending_limit
from evalfleet.store.reader import StoreReader

_GRACE_S = 3.0  # left to the command that has just written a request, before we take it for dead
_FIRST_S = 5.0  # before what failed is tried again; doubles each time
_LONGEST_S = 900.0
_DONE = (0, 3)  # 3: it said why not


class PoolStanding(Struct, frozen=True, kw_only=True):
    """The state of a pool of cloud machines."""

    owned: bool  # by whatever process
    settled: bool  # it is in its desired state
    used: bool  # a run that is not over will keep it


class PoolChildren(Struct, frozen=True, kw_only=True):
    """Implements `ChildKind`."""

    reachable: bool  # the cloud is set up here
    elsewhere: str | None = None  # why they can be looked after in another folder only
    most: int = 8
    kind: str = "pool"
    stops_with_server: bool = False
    former_file: tuple[str, str] = ("serve-pools.json", "pools")

    def read(self, store: StoreReader, names: Collection[str], room: int) -> dict[str, PoolStanding]:
        return standings(store)

    def lacks(self, state: PoolStanding) -> str | None:
        return self.elsewhere

    def needed(self, state: PoolStanding, now: float) -> Child | None:
        if not self.reachable or state.owned or state.settled or state.used:
            return None
        return Child(requested=False, not_before=now + _GRACE_S)

    def next(self, child: Child, state: PoolStanding | None, *, unseen: bool, now: float) -> Next:
        if child.process is not None:
            return Next.WAIT
        if state is None:
            return Next.WAIT if unseen else Next.FORGET
        if state.owned:
            # The owner looks at the cloud, too; but it leaves machines in quarantine alone, and may have left since.
            child.requested = child.retry or unseen
            return Next.WAIT
        if state.settled and not child.requested:
            return Next.FORGET
        return Next.START if child.not_before <= now else Next.WAIT

    def delay_s(self, code: int, state: PoolStanding, failures: int) -> float | None:
        if code in _DONE and state.settled:
            return None
        return min(_LONGEST_S, _FIRST_S * 2.0 ** min(failures, 10))

    def describe(self, state: PoolStanding) -> str:
        return "in its desired state" if state.settled else "not in its desired state"

    def arguments(self, name: str, child: Child) -> tuple[str, ...]:
        return ("pool", "settle", name, *(("--again",) if child.retry else ()))

    def log(self, name: str) -> str:
        return f"pools/{name}/settle.log"


def standings(store: StoreReader) -> dict[str, PoolStanding]:
    """Of all pools whose machines we make."""
    with store.snapshot():
        rented = [pool for pool in store.pools.all() if creates_machines(pool)]
        if not rented:
            return {}
        live = store.runs.page(limit=1000, states=["queued", "running", "paused"])
        used = {row["run"].policy.pool for row in live}
        used |= {tier.name for pool in used if pool for tier in store.tiers.of_pool(pool)}
        return {
            pool.name: PoolStanding(
                owned=store.pools.owner(pool.name) is not None,
                settled=is_settled(pool, store.hosts.of_pool(pool.name)) and not _is_overspent(store, pool),
                used=pool.name in used,
            )
            for pool in rented
        }


def _is_overspent(store: StoreReader, pool: Pool) -> bool:
    """Whether machines must be stopped because the pool's budget is spent."""
    if not any(host.desired is DesiredState.RUNNING for host in store.hosts.of_pool(pool.name)):
        return False
    limit = spending_limit(store, pool).usd
    return limit is not None and total_usd(store.hosts.of_pool(pool.name, gone=True), store.now()) >= limit
