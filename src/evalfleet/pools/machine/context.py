"""What all machines of one pool share while they are made: the cloud, the store, the networks, what is refused lately."""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from functools import partial

import anyio
from msgspec.structs import replace

from evalfleet import config
from evalfleet.azure import prices
from evalfleet.azure.error_causes import Action, Cause, Problem
from evalfleet.azure.images import Images
from evalfleet.azure.offers import Closed, Offering, Stop
from evalfleet.azure.pool import AzurePool
from evalfleet.azure.requests import vm
from evalfleet.azure.settings import AzureSettings
from evalfleet.azure.sizes import find
from evalfleet.azure.vms import Network, Refusal, Vms
from evalfleet.core.hosts.lifecycle import HOUR_S, total_usd
from evalfleet.errors import BackendError
from evalfleet.layout import Home
from evalfleet.model import DesiredState, HostState, JsonObject, Pool, PoolHost
from evalfleet.pools.login_key import LoginKey
from evalfleet.pools.reaper import is_part
from evalfleet.store.base.store import Store
from evalfleet.store.thread import Clerk

SLOW_START = 3  # creations at a time until the first VM is there
AT_A_TIME = 20
SCHEDULE_S = 23 * HOUR_S  # a schedule knows the time of day only
LEAST_LEFT_S = 1800.0  # a deadline is never nearer than this: schedules are not exact
REFUSALS = 3  # machines in a row that nobody would sell: then the pool asks for no more


class NotOurs(BackendError):
    """The pool has another owner now."""


class PoolContext:
    """Used in the loop's thread; speaks to the store through the clerk."""

    def __init__(
        self,
        *,
        store: Store,
        clerk: Clerk,
        home: Home,
        settings: config.Settings,
        pool: Pool,
        wanted: AzurePool,
        azure: AzureSettings,
        vms: Vms,
        login: LoginKey,
        owner: str,
        labels: Collection[str],
        legacy: str | None,
        images: Images,
        tell: Callable[[PoolHost], None],
        rng: random.Random,
    ) -> None:
        self.store = store
        self.clerk = clerk
        self.home = home
        self.settings = settings
        self.pool = pool
        self.wanted = wanted
        self.azure = azure
        self.vms = vms
        self.login = login
        self.owner = owner  # the label of all that we make
        self._labels = labels  # with those of homes whose place ours took
        self._legacy = legacy  # of all that we made before homes had ids: another home may have had the same
        self._images = images
        self._image: str | None = None  # id, once found
        self.rng = rng
        self.closed = Closed()
        self._tell = tell
        self._prices = prices.load(home.prices)
        self._networks: dict[str, Network] = {}
        self._network_lock = anyio.Lock()
        self._makers = anyio.CapacityLimiter(SLOW_START)
        self._refused = 0
        self._worst: Problem | None = None  # of those that creations had
        self._told = 0  # the weight of what a person was told
        self.paused_at = 0.0  # when the pool said last why it makes no more
        self.is_proven = False  # whether a VM was made since the last refusal was forgiven

    # The store

    async def now(self) -> float:
        return await self.clerk.call(self.store.now)

    async def move(self, host: PoolHost, before: HostState | None = None) -> PoolHost:
        """Write down how far a host is.

        Raises:
            NotOurs: somebody else keeps the pool now.
        """
        moved = await self.clerk.call(partial(self.store.move_host, self.pool, before or host.state, host))
        if moved is None:
            raise NotOurs(f"pool {self.pool.name!r} is kept by another process now; this one stops")
        self._tell(moved)
        return moved

    async def fresh(self, host: PoolHost) -> PoolHost:
        """The host with the desired state that it has now."""
        rows = await self.clerk.call(partial(self.store.hosts, self.pool.name, gone=True))
        found = next((row for row in rows if row.name == host.name), None)
        if found is None:
            raise NotOurs(f"pool {self.pool.name!r} was deleted by another process; this one stops")
        return found

    def has_made(self, name: str, tags: Mapping[str, str], known: Collection[str]) -> bool:
        """Whether a resource is ours. `known`: the machines that the pool has and had."""
        owner = tags.get(vm.TAG_OWNER)
        return owner in self._labels or (owner is not None and owner == self._legacy and is_part(name, known))

    # What a VM needs around it

    async def network(self, region: str) -> Network:
        async with self._network_lock:
            if region not in self._networks:
                await self.vms.ensure_group(region, self.owner)
                self._networks[region] = await self.vms.ensure_network(self.pool.name, region, self.owner)
            return self._networks[region]

    async def image(self) -> str | None:
        """The id of the image that new machines are made from; a name stands for its newest version.

        Looked for when a machine is to be made, and not before: a pool whose image is gone can still be stopped and deleted.

        Raises:
            Refusal: there is no such image.
        """
        name = self.wanted.image
        if name is None or name.startswith("/"):
            return name
        if self._image is None:
            found = await self._images.find(name)
            if found is None:
                message = (
                    f"there is no image {name!r}; `evalfleet pool bake --image {name}` makes it of a prepared machine"
                )
                raise Refusal(Problem(cause=Cause.IMAGE, action=Action.GIVE_UP, message=message))
            self._image = found.id
        return self._image

    async def drop_networks(self, regions: set[str]) -> None:
        """Those of the regions that are known, and of others that the cloud shows: an offer may have failed there.

        A network that has machines is not ours alone: another home has a pool of the same name. Its last user drops it.
        """
        found = {each.region for each in await self.vms.owned(self.pool.name)}
        used = {view.region for view in await self.vms.list(self.pool.name)}
        for region in sorted((regions | found) - used - {""}):
            await self.vms.drop_network(self.pool.name, region)
            self._networks.pop(region, None)

    # MachineCreation, a few at a time

    @asynccontextmanager
    async def permission(self) -> AsyncGenerator[bool]:
        """Wait for one's turn to ask for a VM. False: the pool has been refused too often, and asks for no more."""
        async with self._makers:
            yield self._refused < REFUSALS

    def made(self) -> None:
        self._refused = 0
        self.is_proven = True
        self._makers.total_tokens = AT_A_TIME

    def failed(self, problem: Problem, failed: Offering, now: float) -> None:
        """A creation failed: until the next one works, one at a time finds out what can still be had, if anything."""
        self._makers.total_tokens = 1
        self.closed = self.closed.after(problem, failed, self.wanted.offers(), now)
        if problem.action is Action.GIVE_UP:
            self._refused = REFUSALS
        if _weight(problem) > _weight(self._worst):
            self._worst = problem

    async def refused(self, stop: Stop) -> None:
        """A machine cannot be had. Said once for the whole pool: what a person can change before what only time can."""
        self._refused += 1
        told = stop.problem is not None and _weight(self._worst) < 2
        problem = stop.problem if told else self._worst
        if self._told > _weight(problem):
            return
        self._told = 1 + _weight(problem)
        message = stop.message if told or problem is None else problem.message
        await self.explain(str(problem.cause) if problem else "closed", message)

    async def deadline_s(self) -> float:
        """After how long a machine shall stop by itself, if nobody comes: `max_hours`, or before that when the pool's budget
        would be spent by the machines that it has now."""
        length_s = min(self.wanted.max_hours * HOUR_S, SCHEDULE_S)
        if self.wanted.budget_usd is None:
            return length_s
        rows = await self.clerk.call(partial(self.store.hosts, self.pool.name, gone=True))
        now = await self.now()
        there = [row for row in rows if row.gone_at is None and row.desired is DesiredState.RUNNING]
        usd_per_hour = sum(row.usd_per_hour + row.kept_usd_per_hour for row in there)
        left = self.wanted.budget_usd - total_usd(rows, now)
        # A schedule has whole minutes: it must not come before the money is spent.
        paid_s = left / usd_per_hour * HOUR_S + 60.0 if usd_per_hour > 0 else length_s
        return max(min(length_s, paid_s), min(LEAST_LEFT_S, length_s))

    async def explain(self, cause: str, message: str) -> None:
        """Say why the pool makes no more machines."""
        self.paused_at = await self.now()
        reason: JsonObject = {"cause": cause, "message": message}
        await self.clerk.call(partial(self.store.explain_pool, self.pool.name, reason))

    async def forgive(self) -> None:
        """Ask again for what was refused."""
        await self.clerk.call(partial(self.store.explain_pool, self.pool.name, None))
        self._refused = self._told = 0
        self._worst = None
        self.is_proven = False
        self._makers.total_tokens = SLOW_START

    def pause_s(self, times: int, error: Refusal) -> float:
        """How long to wait before the cloud is asked again that refused so often."""
        return max(error.problem.wait_s, self.azure.poll_s * 2 ** min(times, 6))

    # Prices

    def priced(self, host: PoolHost, offering: Offering) -> PoolHost:
        """The host with what it costs in an hour of our clock: the emulator's hours may pass more quickly. Where the price of
        a spot machine is not known, it is that on demand, and its facts say that it is at most that."""
        found, how = self._prices.find(offering), "known"
        if found is None and offering.spot:
            found, how = self._prices.find(replace(offering, spot=False)), "at_most"
        host = replace(host, facts={**host.facts, "price": how if found else "unknown"})
        usd = found.usd_per_hour if found else 0.0
        disk = prices.disk_usd_per_hour(vm.disk_kind(find(offering.size)), self.wanted.disk_gb)
        kept = disk + prices.IP_USD_PER_HOUR
        return replace(host, usd_per_hour=usd * self.azure.speed, kept_usd_per_hour=kept * self.azure.speed)


def _weight(problem: Problem | None) -> int:
    """How much a person should hear of it first."""
    if problem is None:
        return 0
    return 2 if problem.action in (Action.ASK_QUOTA, Action.GIVE_UP) else 1
