"""What the controllers of a pool and of its machines share: the pool's rows, its cloud, its settings."""

from __future__ import annotations

import math
import random
from collections.abc import AsyncGenerator, Collection, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from msgspec.structs import replace

from evalfleet import config
from evalfleet.benchmarks.registry import container_images
from evalfleet.core.hosts.lifecycle import HOUR_S, total_usd
from evalfleet.errors import WrongFolder
from evalfleet.layout import Home
from evalfleet.model import DesiredState, Pool, PoolHost
from evalfleet.pools.cloud.problems import Action, Cause, Problem, Refusal
from evalfleet.pools.cloud.protocol import (
    Cloud,
    CloudProvider,
    QueuesRequests,
    ReachedByMailbox,
    RunsJobs,
    keeps_stopped,
)
from evalfleet.pools.cloud.purchases import Purchases, candidates
from evalfleet.pools.cloud.records import LABEL_OWNER, Offering
from evalfleet.pools.machine.keys import login_key
from evalfleet.pools.record import PoolRecord
from evalfleet.pools.settings import settings_of
from evalfleet.pools.spending import spending_limit
from evalfleet.store.home import place
from evalfleet.store.home.facts import Identity, identified

if TYPE_CHECKING:
    from evalfleet.pools.machine.mailbox import Mailbox
    from evalfleet.pools.machine.silence import SilenceWatch

SCHEDULE_S = 23 * HOUR_S  # a schedule knows the time of day only
THROTTLED_PATIENCE = 60  # times that a cloud may ask for fewer requests in a row
DRAIN_S, DRAIN_SHARE = 600.0, 0.25  # of a job's time, at most
LEAST_LEFT_S = 1800.0  # a deadline is never nearer than this: schedules are not exact


class PoolContext:
    """Used in the loop's thread."""

    def __init__(
        self,
        record: PoolRecord,
        cloud: Cloud,
        provider: CloudProvider,
        settings: config.Settings,
        identity: Identity,
        mailbox: Mailbox | None = None,
    ) -> None:
        """
        Args:
            mailbox: where its machines are reached that cannot be called; None: they are reached over SSH.
        """
        self.record = record
        self.cloud = cloud
        self.provider = provider
        self.settings = settings
        self.home = Home(settings.home)
        if place.member_of(settings.home):
            raise WrongFolder(
                f"the keys to the machines of pool {record.name} are in {identity.facts.path}, the home's first folder; do it there"
            )
        self.login = login_key(self.home)
        self.identity = identity
        self.mailbox = mailbox
        self.keeps_stopped = keeps_stopped(provider)
        self.moves_deadlines = not isinstance(provider, RunsJobs)
        queued = isinstance(provider, QueuesRequests) and provider.queues_requests
        self.purchases = Purchases(record, provider.family, random.Random(), cloud.poll_s, queued=queued)
        self._pool: Pool | None = None
        self._image: str | None = None  # id, once found

    @property
    def first_check(self) -> str:
        """What holds once the cloud says that a machine runs."""
        return "arm" if self.mailbox is None else "node"

    @property
    def longest_s(self) -> float:
        """How far a deadline can be."""
        return SCHEDULE_S if self.moves_deadlines else math.inf

    @property
    def drain_s(self) -> float:
        """How long before the end of its job a machine takes no new tasks."""
        if self.moves_deadlines:
            return 0.0
        return self.wanted.deadline.get("drain", min(DRAIN_S, DRAIN_SHARE * self.wanted.max_hours * HOUR_S))

    @property
    def images(self) -> tuple[str, ...]:
        """The containers' images that the tasks of the pool's benchmark need on each machine."""
        return container_images(self.wanted.benchmark, self.settings)

    async def refresh(self) -> Pool:
        """Read the pool again, whose settings people change. Raises NotOwned."""
        self._pool = await self.record.pool()
        self.wanted = settings_of(self._pool)
        self.limit = await self.record.call(spending_limit, self.record.store, self._pool)
        return self._pool

    def offers(self, wanted_size: str = "") -> tuple[Offering, ...]:
        """What a machine may be. Of a pool with several sizes each machine has its own: another may not hold its tasks."""
        sizes = (wanted_size,) if wanted_size else self.wanted.size
        return candidates(sizes, self.wanted.regions, spot=self.wanted.spot)

    def has_made(self, name: str | None, labels: Mapping[str, str], known: Collection[str]) -> bool:
        """Whether a machine, or a part of one, is ours. `known`: the machines that the pool has and had."""
        owner = labels.get(LABEL_OWNER)
        if owner in self.identity.labels:
            return True
        # The label of a home without id: another home may have had the same.
        return owner is not None and owner == self.identity.legacy and name in known

    async def image(self) -> str | None:
        """The id of the image that new machines are created from; a name stands for its newest version.

        Looked for when a machine is to be created, and not before: a pool whose image is gone can still be stopped and
        deleted. Raises Refusal where there is no such image.
        """
        name = self.wanted.image
        if name is None or name.startswith("/"):
            return name
        if self._image is None:
            self._image = await self.cloud.image(name)
        if self._image is None:
            message = (
                f"there is no image {name!r}; `evalfleet pool bake --image {name}` creates it from a prepared machine"
            )
            raise Refusal(Problem(cause=Cause.IMAGE, action=Action.GIVE_UP, message=message))
        return self._image

    async def clean_regions(self, regions: set[str]) -> None:
        """Of the regions that are known, and of others that the cloud shows: an offer may have failed there.

        What has machines is not ours alone: another home has a pool of the same name. Its last user cleans up.
        """
        pool = self.record.name
        found = {each.region for each in await self.cloud.resources(pool)}
        used = {view.region for view in await self.cloud.list(pool)}
        for region in sorted((regions | found) - used - {""}):
            await self.cloud.clean_region(pool, region)

    async def deadline_s(self) -> float:
        """After how long a machine stops without a controller: `max_hours`, or before that when the pool's
        budget would be spent by the machines that it has now."""
        length_s = min(self.wanted.max_hours * HOUR_S, self.longest_s)
        if self.limit.usd is None:
            return length_s
        rows = await self.record.hosts(gone=True)
        now = await self.record.now()
        there = [row for row in rows if row.gone_at is None and row.desired is DesiredState.RUNNING]
        usd_per_hour = sum(row.usd_per_hour + row.kept_usd_per_hour for row in there) + self.limit.others_usd_per_hour
        left = self.limit.usd - total_usd(rows, now)
        # A schedule has whole minutes: it must not come before the money is spent.
        paid_s = left / usd_per_hour * HOUR_S + 60.0 if usd_per_hour > 0 else length_s
        return max(min(length_s, paid_s), min(LEAST_LEFT_S, length_s))

    def pause_s(self, times: int, error: Refusal) -> float:
        """How long to wait before the cloud is asked again that refused so often. Where it asks for fewer requests, its own
        word counts."""
        if error.problem.cause is Cause.THROTTLED:
            return error.problem.wait_s
        return max(error.problem.wait_s, self.cloud.poll_s * 2 ** min(times, 6))

    def gives_up(self, times: int, error: Refusal, patience: int) -> bool:
        """Whether the cloud refused so often in a row that a person must hear of it."""
        return times >= (THROTTLED_PATIENCE if error.problem.cause is Cause.THROTTLED else patience)

    def priced(self, host: PoolHost, offering: Offering) -> PoolHost:
        """The host with what it costs in an hour of our clock: the hours of an emulator may pass more quickly. Its facts say
        whether the price is known, or is at most that."""
        found = self.cloud.price(offering, self.wanted.disk_gb)
        how = "unknown" if found.usd_per_hour is None else ("at_most" if found.at_most else "known")
        speed = self.provider.speed(self.settings)
        return replace(
            host,
            facts={**host.facts, "price": how},
            usd_per_hour=(found.usd_per_hour or 0.0) * speed,
            kept_usd_per_hour=found.kept_usd_per_hour * speed,
        )


@asynccontextmanager
async def opened_mailbox(
    provider: CloudProvider, settings: config.Settings, identity: Identity, pool: str
) -> AsyncGenerator[Mailbox | None]:
    """The boxes of a pool's machines inside the block; None where they are reached over SSH. Raises InputError."""
    if not isinstance(provider, ReachedByMailbox):
        yield None
        return
    from evalfleet.pools.machine.mailbox import Mailbox  # brings cryptography

    home = identified(settings.home, identity)
    async with provider.boxes(settings, home, pool) as boxes:
        yield Mailbox(boxes, home)


def silence_watch(context: PoolContext) -> SilenceWatch | None:
    """What finds machines that are stuck; None where they are reached over SSH."""
    if context.mailbox is None:
        return None
    from evalfleet.pools.machine.silence import SilenceWatch  # brings cryptography

    return SilenceWatch(context, context.mailbox)
