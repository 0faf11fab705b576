"""How many machines a pool has: as many as it should, as its runs need, as its budget allows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from functools import partial

from msgspec.structs import replace

from evalfleet.core.hosts.lifecycle import HOUR_S, Demand, counts_as_worker, follow, total_usd
from evalfleet.model import DesiredState, HostState, JsonObject, Pool, PoolHost
from evalfleet.pools.busy import unless_stopped, wanted_workers
from evalfleet.pools.context import PoolContext
from evalfleet.pools.machine.facts import facts_of
from evalfleet.pools.replacement import is_aside, is_replaced

# Times its size in an hour: a pool that loses more machines than that has a problem that replacing does not solve.
LOST_MOST = 2
RETRY_S = 600.0  # after it, what was sold out is asked for again
_LASTING = ("capacity", "sku", "closed", "server", "throttled", "provisioning", "start", "replaced")


class PoolSize:
    """Used in the loop's thread. Writes which machines should be, and what each should be; a controller makes it true."""

    def __init__(self, context: PoolContext, *, creates: bool, stopped_at: float | None) -> None:
        """Arguments as in `PoolController`."""
        self._context = context
        self._store = context.record.store
        self._name = context.record.name
        self._creates = creates
        self._stopped_at = stopped_at
        self._demand: dict[str, int] = {}  # workers that the run could use that we serve, by its id
        self._idle_since: dict[str, float] = {}
        # Machines that a run may start: those that were stopped when it came, or by the budget. What a person stops while
        # it uses the pool stays so, until a person starts it.
        self._asleep: set[str] | None = None
        self._probes = False
        self._has_looked = False

    def follow(self, run_id: str, wanted: int | None) -> None:
        """How many workers the run could use that we serve; None: it does not say yet."""
        self._demand = {} if wanted is None else {run_id: wanted}

    async def begin(self, pool: Pool) -> Pool:
        """A new controller that creates machines asks anew: a person may have seen to what was missing. And the cloud answers
        again."""
        cause = pool.reason.get("cause") if pool.reason else None
        asks_anew = self._creates and cause is not None and cause != "budget" and not self._has_looked
        if cause == "cloud" or asks_anew:
            await self.resume()
            pool = replace(pool, reason=None)
        self._has_looked = True
        return pool

    async def balance(self, pool: Pool, hosts: list[PoolHost], busy: Collection[str], under_way: int) -> None:
        """Request what is missing, start what is needed, shed what is idle.

        Args:
            busy: machines with work.
            under_way: how many are on their way to their desired state.
        """
        wanted = self._context.wanted
        now = await self._context.record.now()
        self._note_idle(hosts, busy, now)
        if not await self._may_request(pool, now):
            return
        needed = await self._needed()
        if wanted.scales:
            count = await self._follow_demand(hosts, needed, busy, now)
        else:
            await self._start_stopped(hosts, needed)
            await self._stop_unused(hosts, needed, now)
            have = len([host for host in hosts if host.state is not HostState.LOST and not is_replaced(host)])
            count = (min(needed, wanted.workers) if self._is_stopped else wanted.workers) - have
        if self._probes and not self._context.purchases.is_proven:
            count = min(count, 1 - under_way)
        if count <= 0 or not self._creates or await self._loses_too_many():
            return
        facts = missing_sizes(wanted.mix, await self._context.record.hosts(), count)
        act = partial(self._store.hosts.request, self._name, f"{wanted.name_prefix}-", facts)
        await self._context.record.call(self._unless_stopped(act))

    async def _follow_demand(self, hosts: list[PoolHost], needed: int, busy: Collection[str], now: float) -> int:
        """Start and shed machines of a pool that scales. Returns how many new ones it needs."""
        wanted = self._context.wanted
        least = 0 if self._is_stopped else wanted.least
        demand = Demand(wanted=needed, least=least, most=wanted.limit)
        idle_s = 0.0 if wanted.run is not None else wanted.idle
        staying = [host for host in hosts if not is_aside(host) and not is_replaced(host)]
        change = follow(staying, demand, idle_s, now, self._idle_since, busy)
        await self._set_desired(change.start, DesiredState.RUNNING, "a run needs it")
        shed = DesiredState.GONE if wanted.idle_action == "delete" or wanted.run is not None else DesiredState.STOPPED
        await self._set_desired(change.shed, shed, f"idle for {idle_s:g} s")
        return change.request

    @property
    def _is_stopped(self) -> bool:
        """Whether a person stopped the pool: it has machines only as far as a run needs them that came later."""
        return self._context.wanted.stopped_at is not None

    async def _needed(self) -> int:
        """Machines that all runs on the pool together could use; 0, if a person stopped it and no run came since."""
        wanted = self._context.wanted
        if self._is_stopped and wanted.stopped_at != self._stopped_at:
            return 0
        count = partial(wanted_workers, self._store, self._name, dict(self._demand))
        return -(-await self._context.record.call(count) // wanted.slots)

    async def _start_stopped(self, hosts: list[PoolHost], needed: int) -> None:
        """Runs on a pool that was stopped start as many of its machines as they can use."""
        missing = needed - sum(1 for host in hosts if counts_as_worker(host))
        asleep = (host for host in hosts if host.state is HostState.STOPPED and host.desired is DesiredState.STOPPED)
        stopped = [host.name for host in asleep if not is_aside(host)]
        if self._asleep is None:
            self._asleep = set(stopped)
        usable = [name for name in stopped if name in self._asleep]
        await self._set_desired(usable[: max(0, missing)], DesiredState.RUNNING, "a run needs it")
        self._asleep -= {host.name for host in hosts if host.desired is DesiredState.RUNNING}

    async def _stop_unused(self, hosts: list[PoolHost], needed: int, now: float) -> None:
        """While all runs on the pool are paused it is not needed: after `idle` its machines stop. A run that goes on starts them."""
        if needed or not self._demand:
            return
        idle_s = self._context.wanted.idle
        unused = [host.name for host in hosts if now - self._idle_since.get(host.name, now) >= idle_s]
        self._asleep = {*(self._asleep or ()), *unused}
        await self._set_desired(unused, DesiredState.STOPPED, f"no run has needed it for {idle_s:g} s")

    def _note_idle(self, hosts: list[PoolHost], busy: Collection[str], now: float) -> None:
        ready = {host.name for host in hosts if host.state is HostState.READY and host.name not in busy}
        self._idle_since = {name: self._idle_since.get(name, now) for name in ready}

    async def _may_request(self, pool: Pool, now: float) -> bool:
        """Not while the pool says why it creates no more; what was only sold out may be there again later."""
        if pool.reason is None:
            return True
        lasts = pool.reason.get("cause") not in _LASTING or now - self._context.purchases.paused_at < RETRY_S
        if lasts or not self._creates:
            return False
        await self.resume()
        return True

    async def resume(self) -> None:
        """Ask again for what was refused."""
        self._probes = self._has_looked  # after a refusal of our own one machine finds out for all
        await self._context.purchases.resume()

    async def _loses_too_many(self) -> bool:
        """Whether machines that were there went although they were to stay, more than replacing them can help; says so."""
        rows = await self._context.record.hosts(gone=True)
        since = await self._context.record.now() - HOUR_S
        stayed = (row for row in rows if row.desired is not DesiredState.GONE and not facts_of(row).ends_soon)
        taken = (row.gone_at for row in stayed if row.made_at is not None)
        lost = sum(1 for gone_at in taken if gone_at is not None and gone_at >= since)
        limit = self._context.wanted.limit
        if lost <= limit * LOST_MOST:
            return False
        message = f"{lost} machines were lost within an hour, of a pool of {limit}; look why"
        await self._context.purchases.pause("replaced", f"{message}: `evalfleet events pool:{self._name}`")
        return True

    async def _set_desired(self, names: tuple[str, ...] | list[str], desired: DesiredState, reason: str) -> None:
        if desired is DesiredState.STOPPED and not self._context.keeps_stopped:
            desired = DesiredState.GONE
        if names:
            act = partial(self._store.hosts.set_desired, self._name, list(names), desired, reason)
            await self._context.record.call(self._unless_stopped(act) if desired is DesiredState.RUNNING else act)

    def _unless_stopped(self, act: Callable[[], object]) -> Callable[[], None]:
        return partial(unless_stopped, self._store, self._name, self._context.wanted.stopped_at, act)

    async def is_spent(self, pool: Pool, hosts: list[PoolHost]) -> bool:
        """At its budget the pool takes no new work; what runs ends, and then the machines are stopped."""
        limit = self._context.limit.usd
        everything = await self._context.record.hosts(gone=True)
        spent = total_usd(everything, await self._context.record.now())
        was = pool.reason is not None and pool.reason.get("cause") == "budget"
        if limit is None or spent < limit:
            if was:
                await self.resume()
            return False
        if not was:
            whose = self._context.limit.pool
            more = f"`evalfleet pool scale {whose} --budget USD` allows more"
            of = "" if whose == self._name else f", all that the budget of pool {whose} leaves it"
            await self._context.purchases.pause("budget", f"spent ${spent:.2f} of ${limit:.2f}{of}; {more}")
        running = [host.name for host in hosts if host.desired is DesiredState.RUNNING]
        self._asleep = {*(self._asleep or ()), *running}
        await self._set_desired(running, DesiredState.STOPPED, "the budget is spent")
        return True


def missing_sizes(mix: Mapping[str, int], hosts: Collection[PoolHost], count: int) -> list[JsonObject]:
    """What is to be known of new machines: in a pool with several sizes, which of them each shall have."""
    if not mix:
        return [{} for _ in range(count)]
    have = Counter(facts_of(host).wanted_size for host in hosts if counts_as_worker(host))
    made: list[JsonObject] = []
    for _ in range(count):
        size = max(mix, key=lambda one: (mix[one] - have[one]) / mix[one])  # the share that is missing most
        have[size] += 1
        made.append({"wanted_size": size})
    return made
