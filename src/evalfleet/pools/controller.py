"""Reconciles one pool: makes its machines what they should be, replaces those that are taken, moves deadlines.

There is one at a time, the pool's owner: `own_pool` makes this process that, `reconcile_pool` waits where another process is.
It can die at any moment: the next one reads what should be, lists the cloud by label, and goes on.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial

import anyio
from anyio.abc import TaskGroup
from msgspec import Struct, field

from evalfleet import config
from evalfleet.core.hosts.lifecycle import Stage, Step, drains_work, is_due, next_step
from evalfleet.errors import EvalfleetError, NotFound, Owned
from evalfleet.hosts.base import first_error
from evalfleet.model import DesiredState, HostState, HostWork, PoolHost
from evalfleet.pools.busy import waits_for
from evalfleet.pools.cloud.problems import Action, Refusal
from evalfleet.pools.cloud.protocol import NotifiesOfBudgets
from evalfleet.pools.cloud.quota import note_quota
from evalfleet.pools.cloud.records import Kind, MachineView
from evalfleet.pools.cloud.waits import waiting, waiting_for
from evalfleet.pools.context import PoolContext, opened_mailbox, silence_watch
from evalfleet.pools.kinds.registry import cloud_of
from evalfleet.pools.machine.cloud_loads import CloudLoads
from evalfleet.pools.machine.controller import MachineController, seen
from evalfleet.pools.machine.deadline import let_stop, move_deadlines, stop_idle
from evalfleet.pools.machine.facts import facts_of, keeps_box
from evalfleet.pools.record import PoolRecord
from evalfleet.pools.registry_file import RegistryFile
from evalfleet.pools.replacement import set_aside
from evalfleet.pools.settings import is_settled
from evalfleet.pools.size import PoolSize
from evalfleet.store.home.facts import identified
from evalfleet.store.store import Store
from evalfleet.store.thread import StoreThread

Tell = Callable[[PoolHost], None]
REST_S = 0.3  # between two looks at all machines, which cost the more the more they are
PATIENCE = 8  # looks at the whole pool that are refused in a row, each after a longer pause
OWNER_LOOK_S = 0.5  # between two looks at what another owner has done
FAILED_PAUSES = 12  # polls until a machine that could not be brought to its desired state is tried again


class Reconciling(Struct, frozen=True, kw_only=True):
    """A machine on its way."""

    desired: DesiredState
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)


class PoolController:
    """Used in the loop's thread.

    Work is what the store knows of any run, and what the run says that we serve, if we serve one (`follow`): it
    knows of canaries, and of files that are on their way. Nothing with work is stopped or deleted, unless a person forces
    it: it gets no more, and goes when it has none.
    """

    def __init__(self, context: PoolContext, *, creates: bool = True, stopped_at: float | None = None) -> None:
        """
        Args:
            creates: whether machines that are missing are created.
            stopped_at: when a person had stopped the pool, as the run found it that we serve: such a pool it may wake.
        """
        self._context = context
        self._store = context.record.store
        self._name = context.record.name
        self._size = PoolSize(context, creates=creates, stopped_at=stopped_at)
        self._silence = silence_watch(context)
        self._reconciling: dict[str, Reconciling] = {}
        self._failed: dict[str, tuple[Refusal, float]] = {}  # and when
        self._only_drains = False  # all that is left to do waits for work to end
        self._strays: set[str] = set()  # machines without a row that we have asked the cloud to delete
        self._serves = False
        self._loads = CloudLoads(context)
        self._registry_file = RegistryFile(context)
        self._is_let_in = not creates  # whether the network of the machines admits the address that we have now
        self._budget_told: tuple[float | None] | None = None  # the budget that the cloud was told of
        self._counts = True  # whether the quota may be another than when it was last looked at
        self._poked = anyio.Event()
        self._work: Mapping[str, Sequence[HostWork]] = {}  # of all runs, by host, at the last look
        self._busy: Mapping[str, int] = {}
        self._given_up: Mapping[str, str] = {}
        self.is_gone = False  # the pool was deleted, as ordered

    def follow(self, run_id: str, wanted: int | None, busy: Mapping[str, int], given_up: Mapping[str, str]) -> None:
        """Heed what the run says that we serve, at once.

        Args:
            wanted: workers that it could use; None: it does not say yet.
            busy: attempts that it has, by machine, live or not collected yet.
            given_up: machines that are of no use to it, and why.
        """
        self._size.follow(run_id, wanted)
        self._busy = dict(busy)
        self._given_up = dict(given_up)
        self._poked.set()

    async def settle(self, *, waits: bool = True) -> None:
        """Return when every machine is what it should be, or cannot be now: `Pool.reason` says why not.

        Args:
            waits: also for machines that are to go and have work.

        Raises Refusal where the cloud refuses us, or a machine, for good or for long; NotOwned where the pool has another owner.
        """
        refused = 0
        async with _machine_tasks() as group:
            while True:
                try:
                    is_over = await self._tick(group)
                    refused = 0
                except Refusal as error:
                    refused += 1
                    if error.problem.action is Action.GIVE_UP or self._context.gives_up(refused, error, PATIENCE):
                        raise
                    pause_s = self._context.pause_s(refused, error)
                    waiting(str(error), pause_s)
                    await anyio.sleep(pause_s)
                    continue
                if self._failed and not self._reconciling:
                    raise next(iter(self._failed.values()))[0]
                if is_over or (self._only_drains and not waits):
                    return
                await self._nap(max(self._context.cloud.poll_s, REST_S))

    async def serve(self) -> None:
        """Keep the pool until we are cancelled, or it is gone. Raises NotOwned."""
        self._serves = True
        refused = 0
        async with _machine_tasks() as group:
            while not self.is_gone:
                pause_s = max(REST_S, 3 * self._context.cloud.poll_s)
                try:
                    await self._tick(group)
                    refused = 0
                except Refusal as error:
                    refused += 1
                    pause_s = max(pause_s, min(60.0, self._context.pause_s(refused, error)))
                    await self._context.purchases.pause("cloud", str(error))
                await self._nap(pause_s)

    async def retry_quarantined(self, most: int | None = None) -> None:
        """Let machines in quarantine prove themselves again, `most` of them or all."""
        context = self._context
        hosts = [host for host in await context.record.hosts() if host.desired is DesiredState.RUNNING]
        waiting = [host for host in hosts if host.state is HostState.QUARANTINED]
        for host in waiting[:most]:
            await MachineController(context, host).move(state=HostState.PREPARING, reason=None)

    async def quarantine(self, name: str, reason: str) -> None:
        """Give a machine that was ready, and is unwell now, no more work."""
        context = self._context
        for host in await context.record.hosts():
            if host.name == name and host.state is HostState.READY:
                await MachineController(context, host).move(state=HostState.QUARANTINED, reason=reason)

    async def part(self) -> float | None:
        """Leave a pool whose machines run: they stop soon, unless another controller takes over.

        Returns when that will be, None where no machine runs. Where deadlines cannot be moved, what is idle goes now.
        """
        if self._context.moves_deadlines:
            return await let_stop(self._context)
        await stop_idle(self._context)
        await self.settle(waits=False)
        return None

    # One look

    async def _tick(self, group: TaskGroup) -> bool:
        """Look at what should be and at the cloud, set off what is to be done. True: nothing is left to do."""
        context = self._context
        views = {view.name: view for view in await context.cloud.list(self._name)}
        hosts = await context.record.hosts()
        # After the hosts: why one of them was given up is written before its row is closed.
        pool = await self._size.begin(await context.refresh())
        if not pool.deleting:
            await self._refresh_cloud({view.region for view in views.values()})
        given_up = self._given_up  # before the work: a host is not given up on account of work that is read too early
        self._work = await context.record.call(self._store.hosts.work)
        strays = await self._drop_strays(views, hosts)
        if not pool.deleting and not await self._size.is_spent(pool, hosts):
            if self._serves:
                hosts = await self._give_up(hosts, given_up)
            busy = {host.name for host in hosts if self._has_work(host.name)}
            await self._size.balance(pool, hosts, busy, len(self._reconciling))
        hosts = await context.record.hosts()
        now = await context.record.now()
        steps = {host.name: self._step(host, views, now) for host in hosts}
        drains = [host.name for host in hosts if drains_work(host, steps[host.name])]
        waits = {name: await self._waits(name) for name in drains}
        due = [host for host in hosts if is_due(host, steps[host.name], waits.get(host.name))]
        await self._drop_outdated(hosts)
        for host in due:
            if host.name not in self._reconciling and host.name not in self._failed:
                self._reconciling[host.name] = Reconciling(desired=host.desired)
                self._counts = True
                group.start_soon(self._reconcile_machine, host)
        kept = [host for host in hosts if host.name not in self._reconciling]
        await move_deadlines(context, kept, views)
        if self._serves:
            group.start_soon(self._loads.look, views)
        await self._registry_file.update(pool)
        if self._counts and not (self._reconciling or pool.deleting):
            self._counts = False
            await note_quota(context, hosts)
        if pool.deleting and not hosts and not self._reconciling and not strays:
            await self._delete_rest()
        is_still = not (due or self._reconciling or strays)
        self._only_drains = is_still and bool(drains)
        return self.is_gone or (is_still and not drains and not pool.deleting)

    async def _give_up(self, hosts: list[PoolHost], given_up: Mapping[str, str]) -> list[PoolHost]:
        """Replace machines that are stuck, and set aside those that are of no use. Returns all as they are then."""
        record = self._context.record
        if self._silence is not None:
            await self._silence.look([host for host in hosts if host.name not in self._reconciling])
            hosts = await record.hosts()
        idle = [host for host in hosts if host.name not in self._reconciling]
        await set_aside(self._context, idle, given_up, self._work)
        return await record.hosts()

    async def _refresh_cloud(self, regions: Collection[str]) -> None:
        """Let the network of machines that are there admit us, whose address may have changed since they were made; and tell
        the cloud a budget that is new."""
        context = self._context
        for region in () if self._is_let_in else regions:
            try:
                await context.cloud.prepare_region(self._name, region, context.identity.label)
            except Refusal as error:
                waiting_for(f"the network in {region} cannot be looked at: {error}")
        self._is_let_in = True
        if regions and self._budget_told != (told := (context.wanted.budget_usd,)):
            self._budget_told = told
            await self._tell_budget(context.wanted.budget_usd)

    async def _tell_budget(self, usd: float | None) -> None:
        """Let the cloud itself notify people of the budget. It only notifies: what it refuses stops nothing."""
        cloud = self._context.cloud
        if isinstance(cloud, NotifiesOfBudgets):
            try:
                await cloud.set_budget(self._name, usd)
            except Refusal as error:
                waiting_for(f"the cloud's own budget of pool {self._name} cannot be set: {error}")

    async def _drop_outdated(self, hosts: list[PoolHost]) -> None:
        """Forget failures after a while, and cancel what leads machines to a state that is not their desired one any more."""
        now = await self._context.record.now()
        again_s = FAILED_PAUSES * self._context.cloud.poll_s
        if self._serves:  # `settle` raises them instead
            self._failed = {name: failed for name, failed in self._failed.items() if now - failed[1] < again_s}
        for host in hosts:
            running = self._reconciling.get(host.name)
            if running is not None and running.desired is not host.desired:
                running.scope.cancel()  # at any moment: it could as well have died then

    def _step(self, host: PoolHost, views: Mapping[str, MachineView], now: float) -> Step:
        has_work = self._has_work(host.name)
        return next_step(
            host,
            seen(views.get(host.name)),
            busy=has_work,
            keeps_stopped=self._context.keeps_stopped,
            keeps_box=keeps_box(host, now, has_work=has_work),
        )

    def _has_work(self, name: str) -> bool:
        return self._busy.get(name, 0) > 0 or bool(self._work.get(name))

    async def _waits(self, name: str) -> str | None:
        """What a machine that is to go waits for, in one line; None: it has no work now.

        Asked anew, because a claim may have been made since the last look; from that order on none is.
        """
        context = self._context
        self._work = await context.record.call(self._store.hosts.work)
        work = self._work.get(name)
        if work:
            return await context.record.call(waits_for, self._store, work)
        return "waits until the run has what is on it" if self._busy.get(name) else None

    async def _reconcile_machine(self, host: PoolHost) -> None:
        machine = MachineController(self._context, host, partial(self._waits, host.name))
        try:
            with self._reconciling[host.name].scope:
                await machine.reconcile()
        except Refusal as error:
            await machine.move(reason=str(error))
            self._failed[host.name] = (error, await self._context.record.now())
        finally:
            del self._reconciling[host.name]
            if not self._reconciling:
                self._poked.set()

    async def _drop_strays(self, views: Mapping[str, MachineView], hosts: list[PoolHost]) -> bool:
        """A VM with our labels but without a row was created after its row was closed, by a request of a controller that died.

        Returns whether there is one, on its way or not.
        """
        known = {host.name for host in hosts}
        strays = [view for name, view in views.items() if name not in known]
        rows = await self._context.record.hosts(gone=True) if strays else []
        once = {row.name for row in rows}
        ours = [view for view in strays if self._context.has_made(view.name, view.labels, once)]
        for name in self._strays - views.keys():
            await self._context.cloud.drop_deadline(name)
        self._strays = {view.name for view in ours}
        for view in ours:
            if view.stage is not Stage.DELETING and not self._has_work(view.name):
                await self._context.cloud.delete(view.name)
        return bool(ours)

    # The end

    async def _delete_rest(self) -> None:
        """All machines are gone: so are their networks, and then the pool."""
        context = self._context
        rows = await context.record.hosts(gone=True)
        for one in await context.cloud.resources(self._name):
            if one.kind is Kind.DEADLINE and context.has_made(one.machine, one.labels, {row.name for row in rows}):
                await context.cloud.delete_resource(one)  # of a machine that went with nobody looking
        if context.mailbox is not None:
            await context.mailbox.delete_all()
        await self._tell_budget(None)
        await context.clean_regions({facts_of(row).region for row in rows} | set(context.wanted.regions))
        await context.record.call(self._store.pools.delete, self._name)
        self.is_gone = True

    async def _nap(self, at_most_s: float) -> None:
        with anyio.move_on_after(at_most_s):
            await self._poked.wait()
        self._poked = anyio.Event()


@asynccontextmanager
async def _machine_tasks() -> AsyncGenerator[TaskGroup]:
    """A task group that raises one of the errors that were raised on purpose."""
    with first_error(EvalfleetError):
        async with anyio.create_task_group() as group:
            yield group


@asynccontextmanager
async def own_pool(
    settings: config.Settings,
    store: Store,
    thread: StoreThread,
    name: str,
    process: str,
    tell: Tell = lambda _: None,
    *,
    creates: bool = True,
    stopped_at: float | None = None,
) -> AsyncGenerator[PoolController]:
    """Own the pool inside the block; `creates` and `stopped_at` as in `PoolController`.

    Raises Owned where another process owns it; NotFound where there is no such pool (any more); InputError where the cloud's
    settings or packages are missing, or name another account than the pool's.
    """
    pool = await thread.call(store.pools.get, name)
    kind = cloud_of(pool)
    kind.require_account(pool, settings)
    identity = await thread.call(store.home.identity)
    async with (
        kind.provider.open(settings, identified(settings.home, identity)) as cloud,
        opened_mailbox(kind.provider, settings, identity, name) as mailbox,
    ):
        taken = await thread.call(store.pools.take, name, process)
        try:
            record = PoolRecord(store, thread, taken, tell)
            context = PoolContext(record, cloud, kind.provider, settings, identity, mailbox)
            await context.refresh()
            yield PoolController(context, creates=creates, stopped_at=stopped_at)
        finally:
            await thread.finish(store.pools.leave, taken)


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

    Raises Refusal where the cloud refuses all requests; InputError where the cloud's settings or packages are missing.
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
    waiting_for(f"another process keeps pool {name}, and does this; waiting for it")
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
        await anyio.sleep(OWNER_LOOK_S)
    return False
