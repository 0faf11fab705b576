"""The hosts of several pools as one run uses them: its tiers. See `core.tiers` for how work is divided between them.

Each tier is a pool with a fleet of its own, which does for it what it does for a run on that pool alone. This one adds which of
them are asked for hosts, and which hosts take new work. No attempt is moved: what runs on a tier goes on there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

import anyio

from evalfleet import config
from evalfleet.core.readiness import Notice
from evalfleet.core.tiers import Share, Tier, TierBreaker, divide, explain, preferred
from evalfleet.errors import NotFound
from evalfleet.hosts.base import Backend, Departure
from evalfleet.model import BreakerState, Pool, Run
from evalfleet.pools.busy import taken_before
from evalfleet.pools.fleet import PoolFleet
from evalfleet.pools.kinds.registry import kind_of
from evalfleet.pools.kinds.tiers import tier_settings
from evalfleet.pools.tiers.member import Member
from evalfleet.pools.tiers.price import worker_price
from evalfleet.store.open import open_store
from evalfleet.store.reader import StoreReader
from evalfleet.store.store import Store
from evalfleet.store.thread import StoreThread

_LOOK_S = 0.5
_REST_S = 0.1  # between two looks, however often something changes
_EVENTS = {
    (BreakerState.CLOSED, BreakerState.OPEN): "tier.opened",
    (BreakerState.OPEN, BreakerState.HALF_OPEN): "tier.half_opened",
    (BreakerState.HALF_OPEN, BreakerState.OPEN): "tier.probed",
    (BreakerState.HALF_OPEN, BreakerState.CLOSED): "tier.closed",
}


class TieredFleet:
    """Implements `Fleet` and `FollowsHealth`. Used in the loop's thread."""

    def __init__(
        self, settings: config.Settings, reader: StoreReader, pool: Pool, run: Run, process: str, notice: Notice
    ) -> None:
        """Raises NotFound where a tier is gone, and what the fleets of the tiers raise."""
        self._settings = settings
        self._pool = pool
        self._run = run
        self._notice = notice
        self._wanted_settings = tier_settings(pool)
        self._terms = self._wanted_settings.terms
        self._silence_s = settings.lease.give_up_s / 2
        self._members: dict[str, Member] = {}
        for stored in reader.tiers.of_pool(pool.name):
            found = reader.pools.get(stored.name)
            kind = kind_of(found)
            fleet = kind.fleet(settings, reader, found, run, process, notice)
            self._members[stored.name] = Member(kind, found, fleet, stored, run.policy.workers)
        self._tier_of = {row.name: name for name in self._members for row in reader.hosts.of_pool(name, gone=True)}
        self._absent: dict[str, str | None] | None = None  # None: the engine did not say yet
        self._wanted = 0
        self._moves = 0
        self._told: dict[str, tuple[int, str]] = {}  # what the store was told of our demand
        self._changed = anyio.Event()
        self._poked = anyio.Event()

    # What the engine asks

    def backends(self) -> Sequence[Backend]:
        found: list[Backend] = []
        for name, member in self._members.items():
            for backend in member.fleet.backends():
                self._tier_of[backend.name] = name
                found.append(backend)
        return found

    def draining(self) -> frozenset[str]:
        """Those of the tiers, and hosts that are left free because a tier before theirs has room, or theirs has failed."""
        return frozenset(host for one in self._members.values() for host in (*one.fleet.draining(), *one.spare))

    def departure(self, host: str) -> Departure | None:
        member = self._member(host)
        if member is None:
            return Departure(cause="worker_lost", message=f"its host {host} does not belong to the pool any more")
        return member.fleet.departure(host)

    async def changed(self) -> None:
        await self._changed.wait()
        self._changed = anyio.Event()

    def waits_for(self) -> str:
        return "; ".join(
            f"tier {name}: {member.breaker.reason}" if member.breaker.reason else member.fleet.waits_for()
            for name, member in self._members.items()
        )

    def want(self, workers: int) -> None:
        if workers != self._wanted:
            self._wanted = workers
            self._poked.set()

    def busy(self, host: str, attempts: int) -> None:
        member = self._member(host)
        if member is not None:
            member.busy[host] = attempts
            member.fleet.busy(host, attempts)

    def blame(self, host: str, reason: str) -> None:
        member = self._member(host)
        if member is not None:
            member.fleet.blame(host, reason)

    def give_up(self, hosts: Mapping[str, str]) -> None:
        for name, member in self._members.items():
            member.fleet.give_up({host: why for host, why in hosts.items() if self._tier_of.get(host) == name})

    def absent(self, hosts: Mapping[str, str | None]) -> None:
        self._absent = dict(hosts)

    def ended(self, host: str, fault: str | None) -> None:
        member = self._member(host)
        if member is not None:
            member.ended(host, fault)

    def expects_hosts(self) -> bool:
        """Always: a tier that failed is tried again."""
        return True

    def moves(self) -> int:
        return self._moves

    def _member(self, host: str) -> Member | None:
        return self._members.get(self._tier_of.get(host, ""))

    async def part(self, *, over: bool) -> None:
        store, thread = open_store(self._settings.home), StoreThread()
        try:
            await thread.call(store.tiers.forget_run, self._run.id)
        finally:
            await thread.finish(store.close)
        for member in self._members.values():
            await member.fleet.part(over=over)

    # Beside the engine

    async def serve(self) -> None:
        store, thread = open_store(self._settings.home), StoreThread()
        try:
            async with anyio.create_task_group() as group:
                for member in self._members.values():
                    group.start_soon(member.fleet.serve)
                    group.start_soon(self._follow, member)
                    group.start_soon(self._find_price, member, store, thread)
                while True:
                    await self._look(store, thread)
                    await anyio.sleep(_REST_S)
                    with anyio.move_on_after(_LOOK_S):
                        await self._poked.wait()
                    self._poked = anyio.Event()
        finally:
            await thread.finish(store.close)

    async def _follow(self, member: Member) -> None:
        while True:
            await member.fleet.changed()
            self._changed.set()
            self._poked.set()

    async def _find_price(self, member: Member, store: Store, thread: StoreThread) -> None:
        usd = await worker_price(self._settings, member.kind, member.pool)
        if usd is not None:
            await thread.call(store.tiers.note_price, self._pool.name, member.name, usd)

    async def _look(self, store: Store, thread: StoreThread) -> None:
        """See how the tiers do, move their breakers, and ask each for its share."""
        await thread.call(self._read, store)
        now = await thread.call(store.now)
        absent = dict.fromkeys(one.name for one in self.backends()) if self._absent is None else self._absent
        for member in self._members.values():
            after = member.look(absent, now, self._terms, self._silence_s)
            if after != member.breaker:
                await self._move(member, after, store, thread)
        tiers = [member.state(now, self._terms) for member in self._members.values()]
        prefer = self._wanted_settings.prefer
        shares = divide(tiers, self._wanted, prefer, self._run.policy.workers)
        before = self.draining()
        for member in self._members.values():
            share = shares[member.name]
            member.limit(share.use, is_open=member.breaker.state is BreakerState.OPEN)
            member.fleet.want(share.order)
        if self.draining() != before:
            self._changed.set()
        await self._tell(preferred(tiers, prefer), shares, store, thread)

    def _read(self, store: Store) -> None:
        """What other processes wrote. In the store's thread, which the loop waits for."""
        stored = {one.name: one for one in store.tiers.of_pool(self._pool.name)}
        for name, member in self._members.items():
            member.stored = stored.get(name, member.stored)
            member.taken = taken_before(store, name, self._run.id)
            with suppress(NotFound):  # then its fleet says what became of its hosts
                member.pool = store.pools.get(name)
            if member.kind.creates_machines:
                member.rows = store.hosts.of_pool(name, gone=True)
                self._tier_of |= {row.name: name for row in member.rows}

    async def _move(self, member: Member, after: TierBreaker, store: Store, thread: StoreThread) -> None:
        before = member.breaker.state
        event = _EVENTS.get((before, after.state))
        data = {"reason": after.reason, "retry_at": after.retry_at, "run": self._run.id}
        moved = await thread.call(store.tiers.move, member.stored, after.to_json(), event, data)
        if moved is None:
            return  # another process was quicker: see the next look
        member.stored = moved
        if event is None:
            return
        self._moves += 1
        self._notice(_sentence(member.name, after))
        if isinstance(member.fleet, PoolFleet) and after.state is not BreakerState.OPEN:
            member.fleet.retry_quarantined(1 if after.state is BreakerState.HALF_OPEN else None)

    async def _tell(
        self, tiers: Sequence[Tier], shares: Mapping[str, Share], store: Store, thread: StoreThread
    ) -> None:
        """Store what we want of each tier, and why: the owners of the pools may be other processes, and people look."""
        wanted = {
            tier.name: (shares[tier.name].order, explain(tier, shares[tier.name], is_first=number == 0))
            for number, tier in enumerate(tiers)
        }
        if wanted == self._told:
            return
        before, self._told = self._told, wanted
        await thread.call(store.tiers.want, self._pool.name, self._run.id, wanted)
        for number, tier in enumerate(tiers):
            passed = tiers[:number]
            is_new = wanted[tier.name][0] and not before.get(tier.name, (0, ""))[0]
            if is_new and passed and all(one.breaker.state is BreakerState.CLOSED for one in passed):
                why = "; ".join(
                    f"{one.name} has no room: {wanted[one.name][1].removeprefix('used: ')}" for one in passed
                )
                await thread.call(store.tiers.spill, self._pool.name, self._run.id, tier.name, why)
                self._notice(f"tier {tier.name} is used as well: {why}")


def _sentence(tier: str, breaker: TierBreaker) -> str:
    match breaker.state:
        case BreakerState.OPEN:
            return f"tier {tier} gets no new work: {breaker.reason}; what runs there goes on"
        case BreakerState.HALF_OPEN:
            return f"tier {tier} is tried again with one worker"
        case _:
            return f"tier {tier} works again"
