"""What a pool asks its cloud for: which offer next, how many at a time, and when it asks no more.

A worker's creation is a small plan: the offers in the order of preference, at most `TRIES` of them asked for. Each refusal
closes the offers that would be refused for the same reason, for as long as that reason tends to last. The functions are pure
(`now` and `rng` are arguments); `Purchases` holds what the machines of one pool share.
"""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio
from msgspec import Struct, field
from msgspec.structs import replace

from evalfleet.pools.cloud.problems import Action, Cause, Problem
from evalfleet.pools.cloud.records import Offering

if TYPE_CHECKING:
    from evalfleet.pools.record import PoolRecord  # brings the store, which readers of plans do without

Family = Callable[[str], str]  # of a size: those that share a quota have the same
SLOW_START = 3  # creations at a time until the first machine is there
AT_A_TIME = 20
QUEUED = 1000  # where requests wait in a queue of the cloud, at no cost
REFUSALS = 3  # machines in a row that could not be had: then the pool asks for no more
TRIES = 3
STARTS = 10  # tries of programs that do not start: they cost little, and two in five that fail are no reason to give up
WAITS = 10  # times that a throttled or conflicting request is repeated
# Refused at once and at no cost, and not asked for again for a while: every offer may be tried.
_AT_ONCE = (Cause.SPOT_QUOTA, Cause.FAMILY_QUOTA, Cause.REGION_QUOTA, Cause.SKU, Cause.IMAGE)
STAGGER_S = 2.0  # spreads the first requests of many workers
JITTER = 0.25
FULL_SPREAD_S = 5.0  # pauses that only spread requests are as long as planned where polling takes so long


def candidates(sizes: Iterable[str], regions: Iterable[str], *, spot: bool = False) -> tuple[Offering, ...]:
    """Return all combinations in the order of preference: the first size in every region, then the next size."""
    places = tuple(regions)
    return tuple(Offering(size=size, region=region, spot=spot) for size in sizes for region in places)


class Closed(Struct, frozen=True):
    """Offers that are not worth asking for, until a moment. Shared by all workers of a pool."""

    until: Mapping[Offering, float] = field(default_factory=dict[Offering, float])

    def at(self, offering: Offering, now: float) -> bool:
        return self.until.get(offering, 0.0) > now

    def after(
        self, problem: Problem, failed: Offering, offers: Iterable[Offering], now: float, family: Family
    ) -> Closed:
        """Return this with every offer closed that the same problem covers."""
        if problem.avoid_s <= 0:
            return self
        covered = {offer: now + problem.avoid_s for offer in offers if covers(problem.cause, failed, offer, family)}
        return Closed({**self.until, **covered})


def covers(cause: Cause, failed: Offering, other: Offering, family: Family) -> bool:
    """Whether an offer would be refused for the reason for which another one was."""
    if other == failed:
        return True
    if other.region != failed.region or other.spot != failed.spot:
        return False
    match cause:
        case Cause.SPOT_QUOTA | Cause.REGION_QUOTA | Cause.IMAGE:
            return True
        case Cause.FAMILY_QUOTA:
            return family(other.size) == family(failed.size)
        case _:
            return False


class Plan(Struct, frozen=True, kw_only=True):
    """The progress of one worker's creation."""

    offers: tuple[Offering, ...]
    current: Offering | None = None
    tries: int = 0
    waits: int = 0
    problems: tuple[Problem, ...] = ()


class Try(Struct, frozen=True, kw_only=True):
    """Try this offer after this many seconds; `clear`: first delete what the last try left."""

    offering: Offering
    after_s: float
    clear: bool


class Stop(Struct, frozen=True, kw_only=True):
    """Ask no more: a person is needed, or time."""

    problem: Problem | None
    message: str


Step = Try | Stop


def next_offer(
    plan: Plan, problem: Problem | None, closed: Closed, now: float, rng: random.Random, family: Family
) -> tuple[Plan, Closed, Step]:
    """Return what to do at the beginning (no problem) or after a problem, and the new state to keep. An offer that was chosen
    and perhaps never asked for is chosen again."""
    failed = plan.current
    if problem is None and failed is not None:
        return plan, closed, Try(offering=failed, after_s=0.0, clear=False)
    if problem is None or failed is None:
        return _choose(plan, closed, now, after_s=rng.uniform(0, STAGGER_S), clear=False)
    plan = replace(plan, problems=(*plan.problems, problem))
    closed = closed.after(problem, failed, plan.offers, now, family)
    if problem.action is Action.GIVE_UP:
        return plan, closed, Stop(problem=problem, message=problem.message)
    after_s = problem.wait_s * (1 + rng.uniform(0, JITTER))
    if problem.cause in (Cause.THROTTLED, Cause.CONFLICT) and plan.waits < WAITS:
        waiting = replace(plan, waits=plan.waits + 1)
        return waiting, closed, Try(offering=failed, after_s=after_s, clear=False)
    most = STARTS if problem.cause is Cause.START else TRIES
    if plan.tries - sum(each.cause in _AT_ONCE for each in plan.problems) >= most:
        return plan, closed, _stopped(plan)
    if problem.action is Action.WAIT:
        again = replace(plan, tries=plan.tries + 1)
        return again, closed, Try(offering=failed, after_s=after_s, clear=True)
    return _choose(plan, closed, now, after_s=rng.uniform(0, STAGGER_S), clear=True)


def _choose(plan: Plan, closed: Closed, now: float, *, after_s: float, clear: bool) -> tuple[Plan, Closed, Step]:
    tried = plan.current
    open_now = [offer for offer in plan.offers if not closed.at(offer, now)]
    # What was tried is tried again only where there is no other: a machine that never answered may have been bad luck.
    options = [offer for offer in open_now if offer != tried] or open_now
    if not options:
        return plan, closed, _stopped(plan)
    chosen = min(options, key=lambda offer: _reluctance(plan, tried, offer))
    return (
        replace(plan, current=chosen, tries=plan.tries + 1),
        closed,
        Try(offering=chosen, after_s=after_s, clear=clear),
    )


def _reluctance(plan: Plan, tried: Offering | None, offer: Offering) -> tuple[bool, int]:
    """Prefer what the last problem advises, then the order of preference."""
    action = plan.problems[-1].action if plan.problems else None
    place = plan.offers.index(offer)
    if tried is not None and action is Action.NEXT_SIZE:
        return offer.region != tried.region, place
    if tried is not None and action is Action.NEXT_REGION:
        return offer.size != tried.size, place
    return False, place


def _stopped(plan: Plan) -> Stop:
    """Name the problem that a person can solve, a missing quota, before the one that only time can."""
    quota = next((each for each in plan.problems if each.quota is not None), None)
    named = quota or (plan.problems[-1] if plan.problems else None)
    if named is None:
        return Stop(
            problem=None,
            message="every size and region that was named failed lately; name others (--size, --regions), or try later.",
        )
    tried = len(plan.problems)
    return Stop(problem=named, message=f"no VM after {tried} {'try' if tried == 1 else 'tries'}: {named.message}")


class Purchases:
    """Shared by all machines of one pool. Used in the loop's thread."""

    def __init__(
        self, record: PoolRecord, family: Family, rng: random.Random, poll_s: float, *, queued: bool = False
    ) -> None:
        """
        Args:
            poll_s: between two looks at the cloud. Where it is short, so are the pauses that only spread requests.
            queued: whether requests wait in a queue of the cloud, at no cost.
        """
        self._record = record
        self._family = family
        self._rng = rng
        self._spread = min(1.0, poll_s / FULL_SPREAD_S)
        self._closed = Closed()
        self._first, self._most = (QUEUED, QUEUED) if queued else (SLOW_START, AT_A_TIME)
        self._limiter = anyio.CapacityLimiter(self._first)
        self._refused = 0
        self._worst: Problem | None = None
        self._told = 0  # the weight of what a person was told
        self.paused_at = 0.0  # when the pool said last why it creates no more
        self.is_proven = False  # whether a machine was created since the last refusal was forgiven

    @asynccontextmanager
    async def permission(self) -> AsyncGenerator[bool]:
        """Wait for one's turn to ask for a machine. False: the pool was refused too often, and asks for no more."""
        async with self._limiter:
            yield self._refused < REFUSALS

    def next_offer(self, plan: Plan, problem: Problem | None, now: float) -> tuple[Plan, Step]:
        """What to ask for at the beginning (no problem), or after a problem."""
        plan, self._closed, step = next_offer(plan, problem, self._closed, now, self._rng, self._family)
        if isinstance(step, Stop):
            return plan, step
        asked_s = min(step.after_s, problem.wait_s if problem else 0.0)  # by the cloud itself
        return plan, replace(step, after_s=asked_s + (step.after_s - asked_s) * self._spread)

    def succeeded(self) -> None:
        self._refused = 0
        self.is_proven = True
        self._limiter.total_tokens = self._most

    def failed(self, problem: Problem, failed: Offering, offers: Iterable[Offering], now: float) -> None:
        """A creation failed: until the next one works, one at a time finds out what can still be had, if anything."""
        if problem.cause is Cause.START:
            return  # machines can be had
        self._limiter.total_tokens = 1
        self._closed = self._closed.after(problem, failed, offers, now, self._family)
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
        await self.pause(str(problem.cause) if problem else "closed", message)

    async def pause(self, cause: str, message: str) -> None:
        """Say why the pool creates no more machines."""
        self.paused_at = await self._record.now()
        await self._record.explain({"cause": cause, "message": message})

    async def resume(self) -> None:
        """Ask again for what was refused."""
        await self._record.explain(None)
        self._refused = self._told = 0
        self._worst = None
        self.is_proven = False
        self._limiter.total_tokens = self._first


def _weight(problem: Problem | None) -> int:
    """How much a person should hear of it first."""
    if problem is None:
        return 0
    return 2 if problem.action in (Action.ASK_QUOTA, Action.GIVE_UP) else 1
