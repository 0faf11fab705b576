"""Keeps one pool: makes its machines what they should be, replaces those that are taken, follows demand, budget, deadlines.

There is one at a time, the pool's owner. It can die at any moment: the next one reads the wishes, lists the cloud by tag,
and goes on.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup

from evalfleet.azure.facts import facts_of
from evalfleet.azure.views import VmView
from evalfleet.azure.vm import TAG_OWNER
from evalfleet.azure.vms import Refusal
from evalfleet.backends.azure_vm import settings_of
from evalfleet.core.hosts import HOUR_S, Demand, Seen, Step, counts_as_worker, follow, next_step, total_usd
from evalfleet.fleet.ground import Ground
from evalfleet.fleet.registry_file import registry_text, write_registry
from evalfleet.fleet.tender import Tender
from evalfleet.model import HostState, JsonObject, Pool, PoolHost, Wish

REPLACED_MOST = (
    2  # times its size: a pool that loses more machines than that has a problem that replacing does not solve
)
RENEW_AT = 0.25  # of the deadline's length, gone by: then it is moved
RETRY_S = 600.0  # after it, what was sold out is asked for again
REST_S = 0.3  # between two looks at all machines, which cost the more the more they are
LEAST_LEFT_S = 1800.0  # a deadline is never moved nearer than this: schedules are not exact
_RESTING = (Step.REST, Step.DRAIN)
_LASTING = ("capacity", "sku", "closed", "server", "throttled", "provisioning")


class Steward:
    """Used in the loop's thread. `want` and `busy` come from the run that it serves, if it serves one."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self._store = ground.store
        self._name = ground.pool.name
        self._tenders: dict[str, anyio.CancelScope] = {}
        self._failed: dict[str, Refusal] = {}
        self._idle_since: dict[str, float] = {}
        self._refused_at: float | None = None
        self._requested = 0
        self._exported = ""
        self._poked = anyio.Event()
        self.wanted_by_run: int | None = None  # workers that the run could use; None: no run is served
        self.busy: dict[str, int] = {}
        self.is_gone = False  # the pool was deleted, as wished

    def poke(self) -> None:
        """Look again at once."""
        self._poked.set()

    async def settle(self) -> None:
        """Return when every machine is what it should be, or cannot be now. Raises Refusal where the cloud refuses us."""
        async with anyio.create_task_group() as group:
            while not await self._tick(group):
                await self._nap(max(self._ground.azure.poll_s, REST_S))

    async def serve(self) -> None:
        """Keep the pool until we are cancelled, or it is gone."""
        pause_s = 3 * self._ground.azure.poll_s
        async with anyio.create_task_group() as group:
            while not self.is_gone:
                try:
                    await self._tick(group)
                except Refusal as error:
                    pause_s = min(60.0, 2 * pause_s)
                    await self._explain("cloud", str(error))
                else:
                    pause_s = 3 * self._ground.azure.poll_s
                await self._nap(max(pause_s, REST_S))

    async def part(self) -> None:
        """Leave a pool whose machines run: they stop by themselves soon after, if nobody comes back."""
        ground = self._ground
        now = await ground.now()
        left_s = max(LEAST_LEFT_S, ground.wanted.idle_s)
        for view in await ground.vms.list(self._name):
            if view.power == "running":
                await ground.vms.set_deadline(view, now + min(left_s, ground.wanted.max_hours * HOUR_S))

    # One look

    async def _tick(self, group: TaskGroup) -> bool:
        """Look at wishes and cloud, set off what is to be done. True: nothing is left to do."""
        ground = self._ground
        pool = await ground.clerk.call(partial(self._store.pool, self._name))
        ground.wanted = settings_of(pool)
        views = {view.name: view for view in await ground.vms.list(self._name)}
        hosts = await ground.clerk.call(partial(self._store.hosts, self._name))
        await self._drop_strays(views, hosts)
        if not pool.deleting:
            await self._balance(pool, hosts)
            await self._watch_budget(pool, hosts)
            hosts = await ground.clerk.call(partial(self._store.hosts, self._name))
        due = [host for host in hosts if self._step(host, views) not in _RESTING]
        for host in due:
            if host.name not in self._tenders and host.name not in self._failed:
                group.start_soon(self._tend, host)
        await self._renew(hosts, views)
        await self._export(pool)
        if pool.deleting and not hosts and not self._tenders:
            await self._bury()
        if self._failed and not self._tenders:
            raise next(iter(self._failed.values()))
        return self.is_gone or (not due and not self._tenders and not pool.deleting)

    def _step(self, host: PoolHost, views: Mapping[str, VmView]) -> Step:
        view = views.get(host.name)
        seen = Seen(provisioning=view.provisioning, power=view.power, spot=view.spot) if view else None
        return next_step(host, seen, busy=self.busy.get(host.name, 0) > 0)

    async def _tend(self, host: PoolHost) -> None:
        with anyio.CancelScope() as scope:
            self._tenders[host.name] = scope
            try:
                await Tender(self._ground, host).tend(busy=self.busy.get(host.name, 0) > 0)
            except Refusal as error:
                self._failed[host.name] = error
            finally:
                del self._tenders[host.name]
                if not self._tenders:
                    self.poke()

    async def _drop_strays(self, views: Mapping[str, VmView], hosts: list[PoolHost]) -> None:
        """A VM of ours that has no row any more came to be after its row was closed: by a request of an owner that died."""
        known = {host.name for host in hosts}
        for name in views.keys() - known:
            if views[name].tags.get(TAG_OWNER) == self._ground.owner and views[name].provisioning != "Deleting":
                await self._ground.vms.delete(name)

    # How many

    async def _balance(self, pool: Pool, hosts: list[PoolHost]) -> None:
        """Request what is missing, start what is needed, shed what is idle."""
        ground, wanted = self._ground, self._ground.wanted
        now = await ground.now()
        if not self._may_request(pool, now):
            return
        self._note_idle(hosts, now)
        if not wanted.scales:
            await self._start_stopped(hosts)
            missing = wanted.workers - len([host for host in hosts if host.state is not HostState.LOST])
            await self._request(missing)
            return
        workers = self.wanted_by_run if self.wanted_by_run is not None else 0
        machines = -(-workers // wanted.slots)
        demand = Demand(wanted=machines, least=wanted.least, most=wanted.limit)
        idle_s = 0.0 if wanted.run is not None else wanted.idle_s
        busy = {name for name, count in self.busy.items() if count}
        change = follow(hosts, demand, idle_s, now, self._idle_since, busy)
        await self._wish(change.start, Wish.RUNNING, "the run needs it")
        shed = Wish.GONE if wanted.idle == "delete" or wanted.run is not None else Wish.STOPPED
        await self._wish(change.shed, shed, f"idle for {idle_s:g} s")
        await self._request(change.request)

    async def _start_stopped(self, hosts: list[PoolHost]) -> None:
        """A run on a pool that was stopped starts as many of its machines as it can use."""
        running = sum(1 for host in hosts if counts_as_worker(host))
        needed = -(-(self.wanted_by_run or 0) // self._ground.wanted.slots) - running
        stopped = [host.name for host in hosts if host.state is HostState.STOPPED and host.wish is Wish.STOPPED]
        await self._wish(stopped[: max(0, needed)], Wish.RUNNING, "the run needs it")

    def _note_idle(self, hosts: list[PoolHost], now: float) -> None:
        ready = {host.name for host in hosts if host.state is HostState.READY and not self.busy.get(host.name)}
        self._idle_since = {name: self._idle_since.get(name, now) for name in ready}

    def _may_request(self, pool: Pool, now: float) -> bool:
        """Not while the pool says why it makes no more; what was only sold out may be there again later."""
        if pool.reason is None:
            self._refused_at = None
            return True
        if self._refused_at is None:
            self._refused_at = now
        return pool.reason.get("cause") in _LASTING and now - self._refused_at >= RETRY_S

    async def _request(self, count: int) -> None:
        wanted = self._ground.wanted
        if count <= 0:
            return
        if self._requested + count > wanted.limit * (1 + REPLACED_MOST):
            message = f"{self._requested} machines were made for {wanted.limit} places; look why they are lost"
            await self._explain("replaced", f"{message}: `evalfleet events pool:{self._name}`")
            return
        self._requested += count
        facts: list[JsonObject] = [{} for _ in range(count)]
        await self._ground.clerk.call(partial(self._store.request_hosts, self._name, f"{wanted.prefix}-", facts))

    async def _wish(self, names: tuple[str, ...] | list[str], wish: Wish, reason: str) -> None:
        if names:
            await self._ground.clerk.call(partial(self._store.wish, self._name, list(names), wish, reason))

    # Money and time

    async def _watch_budget(self, pool: Pool, hosts: list[PoolHost]) -> None:
        """At its budget the pool takes no new work; what runs ends, and then the machines are stopped."""
        limit = self._ground.wanted.budget_usd
        if limit is None:
            return
        everything = await self._ground.clerk.call(partial(self._store.hosts, self._name, gone=True))
        spent = total_usd(everything, await self._ground.now())
        if spent < limit:
            return
        await self._explain(
            "budget",
            f"spent ${spent:.2f} of ${limit:.2f}; `evalfleet pool scale {self._name} --budget USD` allows more",
        )
        await self._wish(
            [host.name for host in hosts if host.wish is Wish.RUNNING], Wish.STOPPED, "the budget is spent"
        )

    async def _renew(self, hosts: list[PoolHost], views: Mapping[str, VmView]) -> None:
        now = await self._ground.now()
        length_s = self._ground.wanted.max_hours * HOUR_S
        for host in hosts:
            at, view = facts_of(host).deadline_at, views.get(host.name)
            ours = host.state is HostState.READY and host.name not in self._tenders
            if ours and view is not None and at is not None and at - now < (1 - RENEW_AT) * length_s:
                await Tender(self._ground, host).renew(view)

    # The end

    async def _bury(self) -> None:
        """All machines are gone: so are their networks, and then the pool."""
        ground = self._ground
        rows = await ground.clerk.call(partial(self._store.hosts, self._name, gone=True))
        await ground.drop_networks({facts_of(row).region for row in rows} - {""})
        await ground.clerk.call(partial(self._store.delete_pool, self._name))
        self.is_gone = True

    async def _explain(self, cause: str, message: str) -> None:
        reason: JsonObject = {"cause": cause, "message": message}
        await self._ground.clerk.call(partial(self._store.explain_pool, self._name, reason))

    async def _export(self, pool: Pool) -> None:
        """For tools that read files; written when it has changed."""
        ground = self._ground
        hosts = await ground.clerk.call(partial(self._store.hosts, self._name, gone=True))
        tallies = await ground.clerk.call(partial(self._store.pool_tallies, pool))
        text = registry_text(pool, hosts, tallies, ground.azure.resource_group)
        if text != self._exported:
            await anyio.to_thread.run_sync(write_registry, ground.home.registry_file(self._name), text)
            self._exported = text

    async def _nap(self, at_most_s: float) -> None:
        with anyio.move_on_after(at_most_s):
            await self._poked.wait()
        self._poked = anyio.Event()
