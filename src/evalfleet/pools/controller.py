"""Keeps one pool: makes its machines what they should be, replaces those that are taken, follows demand, budget, deadlines.

There is one at a time, the pool's owner. It can die at any moment: the next one reads the wishes, lists the cloud by tag,
and goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup
from msgspec import Struct, field
from msgspec.structs import replace

from evalfleet.azure.error_causes import Action
from evalfleet.azure.responses import VmView
from evalfleet.azure.vm_facts import facts_of
from evalfleet.azure.vms import SCHEDULE_TYPE, Refusal
from evalfleet.core.hosts.lifecycle import HOUR_S, Demand, Seen, Step, counts_as_worker, follow, next_step, total_usd
from evalfleet.errors import EvalfleetError
from evalfleet.hosts.azure_pool import settings_of
from evalfleet.model import DesiredState, HostState, HostWork, Pool, PoolHost
from evalfleet.pools.busy import unless_stopped, waits_for, wanted_workers
from evalfleet.pools.deadlines import let_stop, move_deadlines
from evalfleet.pools.machine.context import NotOurs, PoolContext
from evalfleet.pools.machine.controller import MachineController
from evalfleet.pools.quota import note_quota
from evalfleet.pools.registry_file import registry_text, write_registry
from evalfleet.pools.replacement import is_aside, is_replaced, set_aside

# Times its size in an hour: a pool that loses more machines than that has a problem that replacing does not solve.
LOST_MOST = 2
RETRY_S = 600.0  # after it, what was sold out is asked for again
REST_S = 0.3  # between two looks at all machines, which cost the more the more they are
PATIENCE = 8  # looks at the whole pool that are refused in a row, each after a longer pause
FAILED_PAUSES = 12  # polls until a machine that could not be brought to its desired state is tried again
_LASTING = ("capacity", "sku", "closed", "server", "throttled", "provisioning", "replaced")


class Reconciling(Struct, frozen=True, kw_only=True):
    """A machine on its way."""

    desired: DesiredState
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)


class PoolController:
    """Used in the loop's thread.

    Work is what the store knows of any run, and what the run says that we serve, if we serve one (`busy`, `wanted`): it
    knows of canaries, and of files that are on their way. Nothing with work is stopped or deleted, unless a person forces
    it: it gets no more, and goes when it has none.
    """

    def __init__(self, context: PoolContext) -> None:
        self._context = context
        self._store = context.store
        self._name = context.pool.name
        self._reconciling: dict[str, Reconciling] = {}
        self._failed: dict[str, tuple[Refusal, float]] = {}  # and when
        self._idle_since: dict[str, float] = {}
        self._has_looked = False
        self._only_drains = False  # all that is left to do waits for work to end
        # Machines that a run may start: those that were stopped when it came, or by the budget. What a person stops while
        # it uses the pool stays so, until a person starts it.
        self._asleep: set[str] | None = None
        self._probes = False
        self._strays: set[str] = set()  # machines without a row that we have asked the cloud to delete
        self._serves = False
        self._exported = ""
        self._counts = True  # whether the quota may be another than when it was last looked at
        self._poked = anyio.Event()
        self._work: Mapping[str, Sequence[HostWork]] = {}  # of all runs, by host, at the last look
        self.makes = True  # whether machines that are missing are made
        # When a person had stopped the pool, as the run found it that we serve: such a pool it may wake.
        self.stopped_at: float | None = None
        self.wanted: dict[str, int] = {}  # workers that the run could use that we serve, by its id
        self.busy: dict[str, int] = {}
        self.given_up: Mapping[str, str] = {}  # machines that are of no use to the run, and why
        self.is_gone = False  # the pool was deleted, as asked

    def poke(self) -> None:
        """Look again at once."""
        self._poked.set()

    async def settle(self, *, waits: bool = True) -> None:
        """Return when every machine is what it should be, or cannot be now: `Pool.reason` says why not.

        Args:
            waits: also for machines that are to go and have work.

        Raises:
            Refusal: the cloud refuses us, or a machine, for good or for long.
            NotOurs: the pool has another owner.
        """
        with _first_error():
            async with anyio.create_task_group() as group:
                await self._settle(group, waits=waits)

    async def _settle(self, group: TaskGroup, *, waits: bool) -> None:
        refused = 0
        while True:
            try:
                is_over = await self._tick(group)
                refused = 0
            except Refusal as error:
                refused += 1
                if error.problem.action is Action.GIVE_UP or refused >= PATIENCE:
                    raise
                await anyio.sleep(self._context.pause_s(refused, error))
                continue
            if self._failed and not self._reconciling:
                raise next(iter(self._failed.values()))[0]
            if is_over or (self._only_drains and not waits):
                return
            await self._nap(max(self._context.azure.poll_s, REST_S))

    async def serve(self) -> None:
        """Keep the pool until we are cancelled, or it is gone. Raises NotOurs."""
        self._serves = True
        with _first_error():
            async with anyio.create_task_group() as group:
                refused = 0
                while not self.is_gone:
                    pause_s = max(REST_S, 3 * self._context.azure.poll_s)
                    try:
                        await self._tick(group)
                        refused = 0
                    except Refusal as error:
                        refused += 1
                        pause_s = max(pause_s, min(60.0, self._context.pause_s(refused, error)))
                        await self._context.explain("cloud", str(error))
                    await self._nap(pause_s)

    async def retry_quarantined(self) -> None:
        """Let machines in quarantine prove themselves again."""
        context = self._context
        for host in await context.clerk.call(partial(self._store.hosts, self._name)):
            if host.state is HostState.QUARANTINED:
                await MachineController(context, host).move(state=HostState.PREPARING, reason=None)

    async def quarantine(self, name: str, reason: str) -> None:
        """Give a machine that was ready, and is unwell now, no more work."""
        context = self._context
        for host in await context.clerk.call(partial(self._store.hosts, self._name)):
            if host.name == name and host.state is HostState.READY:
                await MachineController(context, host).move(state=HostState.QUARANTINED, reason=reason)

    async def part(self) -> float | None:
        """Leave a pool whose machines run: they stop by themselves soon after, if nobody comes back.

        Returns when that will be, None where no machine runs.
        """
        return await let_stop(self._context)

    # One look

    async def _tick(self, group: TaskGroup) -> bool:
        """Look at wishes and cloud, set off what is to be done. True: nothing is left to do."""
        context = self._context
        views = {view.name: view for view in await context.vms.list(self._name)}
        hosts = await context.clerk.call(partial(self._store.hosts, self._name))
        # After the hosts: why one of them was given up is written before its row is closed.
        pool = await self._resume(await self._read_pool())
        self._work = await context.clerk.call(self._store.host_work)
        strays = await self._drop_strays(views, hosts)
        if not pool.deleting and not await self._is_spent(pool, hosts):
            if self._serves:
                idle = [host for host in hosts if host.name not in self._reconciling]
                await set_aside(context, idle, self.given_up, self._work)
                hosts = await context.clerk.call(partial(self._store.hosts, self._name))
            await self._balance(pool, hosts)
        hosts = await context.clerk.call(partial(self._store.hosts, self._name))
        steps = {host.name: self._step(host, views) for host in hosts}
        drains = [host.name for host in hosts if steps[host.name] is Step.DRAIN]
        waits = {name: await self._waits(name) for name in drains}
        due = [host for host in hosts if _is_due(host, steps[host.name], waits.get(host.name))]
        await self._set_off(group, hosts, due)
        kept = [host for host in hosts if host.name not in self._reconciling]
        await move_deadlines(context, kept, views)
        await self._export(pool)
        if self._counts and not (self._reconciling or pool.deleting):
            self._counts = False
            await note_quota(context, hosts)
        if pool.deleting and not hosts and not self._reconciling and not strays:
            await self._delete_rest()
        is_still = not (due or self._reconciling or strays)
        self._only_drains = is_still and bool(drains)
        return self.is_gone or (is_still and not drains and not pool.deleting)

    async def _read_pool(self) -> Pool:
        pool = await self._context.clerk.call(partial(self._store.pool, self._name))
        if pool.epoch != self._context.pool.epoch:
            raise NotOurs(f"pool {self._name!r} is kept by another process now; this one stops")
        self._context.wanted = settings_of(pool)
        return pool

    async def _resume(self, pool: Pool) -> Pool:
        """Whoever comes anew asks anew: a person may have seen to what was missing. And the cloud answers again."""
        cause = pool.reason.get("cause") if pool.reason else None
        if cause == "cloud" or (cause is not None and cause != "budget" and not self._has_looked):
            await self._forgive()
            pool = replace(pool, reason=None)
        self._has_looked = True
        return pool

    async def _set_off(self, group: TaskGroup, hosts: list[PoolHost], due: list[PoolHost]) -> None:
        now = await self._context.now()
        again_s = FAILED_PAUSES * self._context.azure.poll_s
        if self._serves:  # whoever waits for the end is told instead
            self._failed = {name: failed for name, failed in self._failed.items() if now - failed[1] < again_s}
        for host in hosts:
            running = self._reconciling.get(host.name)
            if running is not None and running.desired is not host.desired:
                running.scope.cancel()  # in whichever moment: it could as well have died then
        for host in due:
            if host.name not in self._reconciling and host.name not in self._failed:
                self._reconciling[host.name] = Reconciling(desired=host.desired)
                self._counts = True
                group.start_soon(self._reconcile_machine, host)

    def _step(self, host: PoolHost, views: Mapping[str, VmView]) -> Step:
        view = views.get(host.name)
        seen = Seen(provisioning=view.provisioning, power=view.power, spot=view.spot) if view else None
        return next_step(host, seen, busy=self._has_work(host.name))

    def _has_work(self, name: str) -> bool:
        return self.busy.get(name, 0) > 0 or bool(self._work.get(name))

    async def _waits(self, name: str) -> str | None:
        """What a machine that is to go waits for, in one line; None: it has no work now.

        Asked anew, because a claim may have been made since the last look; from that order on none is.
        """
        context = self._context
        self._work = await context.clerk.call(self._store.host_work)
        work = self._work.get(name)
        if work:
            return await context.clerk.call(partial(waits_for, self._store, work))
        return "waits until the run has what is on it" if self.busy.get(name) else None

    async def _reconcile_machine(self, host: PoolHost) -> None:
        machine = MachineController(self._context, host, partial(self._waits, host.name))
        try:
            with self._reconciling[host.name].scope:
                await machine.reconcile()
        except Refusal as error:
            await machine.move(reason=str(error))
            self._failed[host.name] = (error, await self._context.now())
        finally:
            del self._reconciling[host.name]
            if not self._reconciling:
                self.poke()

    async def _drop_strays(self, views: Mapping[str, VmView], hosts: list[PoolHost]) -> bool:
        """A VM of ours that has no row any more came to be after its row was closed: by a request of an owner that died.

        Returns whether there is one, on its way or not.
        """
        known = {host.name for host in hosts}
        strays = [view for name, view in views.items() if name not in known]
        rows = await self._context.clerk.call(partial(self._store.hosts, self._name, gone=True)) if strays else []
        once = {row.name for row in rows}
        ours = [view for view in strays if self._context.has_made(view.name, view.tags, once)]
        for name in self._strays - views.keys():
            await self._context.vms.drop_deadline(name)
        self._strays = {view.name for view in ours}
        for view in ours:
            if view.provisioning != "Deleting" and not self._has_work(view.name):
                await self._context.vms.delete(view.name)
        return bool(ours)

    # How many

    async def _balance(self, pool: Pool, hosts: list[PoolHost]) -> None:
        """Request what is missing, start what is needed, shed what is idle."""
        wanted = self._context.wanted
        now = await self._context.now()
        self._note_idle(hosts, now)
        if not await self._may_request(pool, now):
            return
        needed = await self._needed()
        if not wanted.scales:
            await self._start_stopped(hosts, needed)
            await self._stop_unused(hosts, needed, now)
            have = len([host for host in hosts if host.state is not HostState.LOST and not is_replaced(host)])
            await self._request((min(needed, wanted.workers) if self._is_stopped else wanted.workers) - have)
            return
        least = 0 if self._is_stopped else wanted.least
        demand = Demand(wanted=needed, least=least, most=wanted.limit)
        idle_s = 0.0 if wanted.run is not None else wanted.idle_s
        busy = {host.name for host in hosts if self._has_work(host.name)}
        change = follow([host for host in hosts if not is_aside(host)], demand, idle_s, now, self._idle_since, busy)
        await self._set_desired(change.start, DesiredState.RUNNING, "a run needs it")
        shed = DesiredState.GONE if wanted.idle == "delete" or wanted.run is not None else DesiredState.STOPPED
        await self._set_desired(change.shed, shed, f"idle for {idle_s:g} s")
        await self._request(change.request)

    @property
    def _is_stopped(self) -> bool:
        """Whether a person stopped the pool: it has machines only as far as a run needs them that came later."""
        return self._context.wanted.stopped_at is not None

    async def _needed(self) -> int:
        """Machines that all runs on the pool together could use; 0, if a person stopped it and no run came since."""
        wanted = self._context.wanted
        if self._is_stopped and wanted.stopped_at != self.stopped_at:
            return 0
        count = partial(wanted_workers, self._store, self._name, dict(self.wanted))
        return -(-await self._context.clerk.call(count) // wanted.slots)

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
        """While all runs on the pool are paused nobody needs it: after `idle` its machines stop. A run that goes on starts them."""
        if needed or not self.wanted:
            return
        idle_s = self._context.wanted.idle_s
        unused = [host.name for host in hosts if now - self._idle_since.get(host.name, now) >= idle_s]
        self._asleep = {*(self._asleep or ()), *unused}
        await self._set_desired(unused, DesiredState.STOPPED, f"no run has needed it for {idle_s:g} s")

    def _note_idle(self, hosts: list[PoolHost], now: float) -> None:
        ready = {host.name for host in hosts if host.state is HostState.READY and not self._has_work(host.name)}
        self._idle_since = {name: self._idle_since.get(name, now) for name in ready}

    async def _may_request(self, pool: Pool, now: float) -> bool:
        """Not while the pool says why it makes no more; what was only sold out may be there again later."""
        if pool.reason is None:
            return True
        if pool.reason.get("cause") not in _LASTING or now - self._context.paused_at < RETRY_S:
            return False
        await self._forgive()
        return True

    async def _forgive(self) -> None:
        self._probes = self._has_looked  # after a refusal of our own one machine finds out for all
        await self._context.forgive()

    async def _request(self, count: int) -> None:
        wanted = self._context.wanted
        if self._probes and not self._context.is_proven:
            count = min(count, 1 - len(self._reconciling))
        if count <= 0 or not self.makes:
            return
        lost = await self._lost_lately()
        if lost > wanted.limit * LOST_MOST:
            message = f"{lost} machines were lost within an hour, of a pool of {wanted.limit}; look why"
            await self._context.explain("replaced", f"{message}: `evalfleet events pool:{self._name}`")
            return
        act = partial(self._store.request_hosts, self._name, f"{wanted.prefix}-", [{} for _ in range(count)])
        await self._context.clerk.call(self._unless_stopped(act))

    async def _lost_lately(self) -> int:
        """Machines that were there, and went although nobody wished it."""
        rows = await self._context.clerk.call(partial(self._store.hosts, self._name, gone=True))
        since = await self._context.now() - HOUR_S
        taken = (row.gone_at for row in rows if row.desired is not DesiredState.GONE and row.made_at is not None)
        return sum(1 for gone_at in taken if gone_at is not None and gone_at >= since)

    async def _set_desired(self, names: tuple[str, ...] | list[str], desired: DesiredState, reason: str) -> None:
        if names:
            act = partial(self._store.set_desired, self._name, list(names), desired, reason)
            await self._context.clerk.call(self._unless_stopped(act) if desired is DesiredState.RUNNING else act)

    def _unless_stopped(self, act: Callable[[], object]) -> Callable[[], None]:
        return partial(unless_stopped, self._store, self._name, self._context.wanted.stopped_at, act)

    # Money and time

    async def _is_spent(self, pool: Pool, hosts: list[PoolHost]) -> bool:
        """At its budget the pool takes no new work; what runs ends, and then the machines are stopped."""
        limit = self._context.wanted.budget_usd
        everything = await self._context.clerk.call(partial(self._store.hosts, self._name, gone=True))
        spent = total_usd(everything, await self._context.now())
        was = pool.reason is not None and pool.reason.get("cause") == "budget"
        if limit is None or spent < limit:
            if was:
                await self._forgive()
            return False
        if not was:
            more = f"`evalfleet pool scale {self._name} --budget USD` allows more"
            await self._context.explain("budget", f"spent ${spent:.2f} of ${limit:.2f}; {more}")
        running = [host.name for host in hosts if host.desired is DesiredState.RUNNING]
        self._asleep = {*(self._asleep or ()), *running}
        await self._set_desired(running, DesiredState.STOPPED, "the budget is spent")
        return True

    # The end

    async def _delete_rest(self) -> None:
        """All machines are gone: so are their networks, and then the pool."""
        context = self._context
        rows = await context.clerk.call(partial(self._store.hosts, self._name, gone=True))
        for one in await context.vms.owned(self._name):
            if one.type.lower() == SCHEDULE_TYPE and context.has_made(one.name, one.tags, {row.name for row in rows}):
                await context.vms.delete_owned(one)  # of a machine that went with nobody looking
        await context.drop_networks({facts_of(row).region for row in rows} | set(context.wanted.regions))
        await context.clerk.call(partial(self._store.delete_pool, self._name))
        self.is_gone = True

    async def _export(self, pool: Pool) -> None:
        """For tools that read files; written when it has changed."""
        context = self._context
        hosts = await context.clerk.call(partial(self._store.hosts, self._name, gone=True))
        tallies = await context.clerk.call(partial(self._store.pool_tallies, pool))
        text = registry_text(pool, hosts, tallies, context.azure.resource_group)
        if text != self._exported:
            await anyio.to_thread.run_sync(write_registry, context.home.registry_file(self._name), text)
            self._exported = text

    async def _nap(self, at_most_s: float) -> None:
        with anyio.move_on_after(at_most_s):
            await self._poked.wait()
        self._poked = anyio.Event()


def _is_due(host: PoolHost, step: Step, waits: str | None) -> bool:
    """Whether there is something to do; a machine that drains has nothing to do but to say for what."""
    if step is Step.DRAIN:
        return host.state is not HostState.DRAINING or host.reason != waits
    return step is not Step.REST


@contextmanager
def _first_error() -> Generator[None]:
    """Let out of a task group's bundle one error that was raised on purpose, so that callers can catch it by its class."""
    try:
        yield
    except BaseExceptionGroup as bundle:
        meant, _ = bundle.split(EvalfleetError)
        first: BaseException | None = meant
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        if first is None:
            raise
        raise first from first.__cause__
