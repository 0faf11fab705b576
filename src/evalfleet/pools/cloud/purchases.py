"""How many machines a pool asks for at a time, and when it stops asking, by what the cloud refused lately."""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager

import anyio

from evalfleet.pools.cloud.offers import Closed, Plan, Step, Stop, next_offer
from evalfleet.pools.cloud.problems import Action, Problem
from evalfleet.pools.cloud.records import Offering
from evalfleet.pools.record import PoolRecord

SLOW_START = 3  # creations at a time until the first machine is there
AT_A_TIME = 20
REFUSALS = 3  # machines in a row that could not be had: then the pool asks for no more


class Purchases:
    """Shared by all machines of one pool. Used in the loop's thread."""

    def __init__(self, record: PoolRecord, family: Callable[[str], str], rng: random.Random) -> None:
        self._record = record
        self._family = family
        self._rng = rng
        self._closed = Closed()
        self._limiter = anyio.CapacityLimiter(SLOW_START)
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
        return plan, step

    def succeeded(self) -> None:
        self._refused = 0
        self.is_proven = True
        self._limiter.total_tokens = AT_A_TIME

    def failed(self, problem: Problem, failed: Offering, offers: Iterable[Offering], now: float) -> None:
        """A creation failed: until the next one works, one at a time finds out what can still be had, if anything."""
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
        self._limiter.total_tokens = SLOW_START


def _weight(problem: Problem | None) -> int:
    """How much a person should hear of it first."""
    if problem is None:
        return 0
    return 2 if problem.action in (Action.ASK_QUOTA, Action.GIVE_UP) else 1
