"""The moment at which a machine's cloud stops it, whether a controller lives or not: no machine runs without one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import anyio
from msgspec.structs import replace

from evalfleet.core.hosts.lifecycle import HOUR_S, Power
from evalfleet.model import DesiredState, HostState, PoolHost
from evalfleet.pools.cloud.problems import Action, Problem, Refusal
from evalfleet.pools.cloud.records import MachineView, Verb
from evalfleet.pools.context import LEAST_LEFT_S, PoolContext
from evalfleet.pools.machine.facts import facts_of
from evalfleet.pools.machine.record import MachineRecord
from evalfleet.pools.machine.renewal import renew_jobs

REQUESTS = 6  # times that a deadline is asked for, each after a longer pause
RENEW_AT = 0.25  # of the deadline's length, gone by: then it is moved


class Unprotected(Exception):
    """The cloud takes no deadline for the machine."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        said = f"no deadline can be set for it, and without one it would run for ever: {problem.message}"
        self.problem = replace(problem, action=Action.GIVE_UP, message=said)


class MachineDeadline:
    """The deadline of one machine."""

    def __init__(self, context: PoolContext, record: MachineRecord) -> None:
        self._context = context
        self._record = record
        self._refusals = 0  # in a row
        self._ask_at = 0.0  # when it may be asked for again

    async def next_at(self, left_s: float | None = None) -> float:
        """The moment so much time from now, as far as a schedule reaches; without a time, what the pool's settings say."""
        length_s = await self._context.deadline_s() if left_s is None else left_s
        return await self._context.record.now() + min(length_s, self._context.longest_s)

    async def renew(self, view: MachineView) -> None:
        """Move it: the machine stops this long after its last contact with a controller."""
        await self.expire(view)
        length_s = self._context.wanted.max_hours * HOUR_S
        await self._context.cloud.extend(view, await self._context.record.now() + length_s)

    async def expire(self, view: MachineView, left_s: float | None = None) -> None:
        """Let the machine stop after this much time, unless `renew` comes first."""
        await self._set(view.region, view.labels, await self.next_at(left_s))

    async def protect(self) -> None:
        """Give a machine that was ordered its deadline, also while it is being created. What is refused is asked for again,
        later: without one it does not become ready."""
        facts = self._record.facts
        is_ordered = facts.operation is not None and facts.operation.verb == Verb.CREATE
        is_fixed = not self._context.moves_deadlines  # with the order
        if is_fixed or facts.deadline_at is not None or not is_ordered or anyio.current_time() < self._ask_at:
            return
        try:
            view = await self._context.cloud.view(self._record.name)
            if view is not None:
                await self._set(facts.region, view.labels, await self.next_at())
        except Refusal as error:
            await self.refused(error.problem)

    async def ensure(self, view: MachineView) -> bool:
        """See that the cloud has it, as it says itself; else set it. False: it was refused, and may be asked for again now.

        Raises Unprotected where it was refused too often.
        """
        if not self._context.moves_deadlines:
            return True
        at, now = self._record.facts.deadline_at, await self._context.record.now()
        try:
            is_near = at is None or at - now < (1 - RENEW_AT) * await self._context.deadline_s()
            if at is None or is_near or not await self._context.cloud.has_deadline(self._record.name, at):
                await self.renew(view)
            return True
        except Refusal as error:
            await self.refused(error.problem)
            if self._refusals >= (2 if error.problem.action is Action.GIVE_UP else REQUESTS):
                raise Unprotected(error.problem) from error
            await anyio.sleep(max(0.0, self._ask_at - anyio.current_time()))
            return False

    async def refused(self, problem: Problem) -> None:
        """Write why the machine has none yet."""
        self._refusals += 1
        self._ask_at = anyio.current_time() + self._context.cloud.poll_s * 2 ** min(self._refusals, 6)
        facts = replace(self._record.facts, deadline_refused=problem.message)
        await self._record.move(facts=facts, reason=f"has no deadline yet: {problem.message}")

    async def _set(self, region: str, labels: Mapping[str, str], at: float) -> None:
        record = self._record
        await self._context.cloud.set_deadline(record.name, region, labels, at)
        self._refusals = 0
        await record.refresh()
        facts = replace(record.facts, deadline_at=at, deadline_refused=None)
        await record.move(facts=facts, reason=None if record.facts.deadline_refused else record.host.reason)


async def move_deadlines(context: PoolContext, hosts: Iterable[PoolHost], views: Mapping[str, MachineView]) -> None:
    """Move those of ready machines that are near, or later than the budget lasts; refusals are reported and tried again. Where they
    are fixed, the machines are replaced in time."""
    if not context.moves_deadlines:
        await renew_jobs(context, hosts, views)
        return
    now = await context.record.now()
    length_s = await context.deadline_s()
    for host in hosts:
        facts, view = facts_of(host), views.get(host.name)
        at = facts.deadline_at
        left_s = 0.0 if at is None else at - now
        is_right = (1 - RENEW_AT) * length_s <= left_s <= (1 + RENEW_AT) * length_s
        if view is None or host.state is not HostState.READY or is_right:
            continue
        machine = MachineRecord(context, host)
        try:
            await MachineDeadline(context, machine).renew(view)  # takes the reason back, where it was refused before
        except Refusal as error:
            if facts.deadline_refused != str(error):
                facts = replace(machine.facts, deadline_refused=str(error))
                await machine.move(facts=facts, reason=f"its deadline cannot be moved: {error}")


async def let_stop(context: PoolContext) -> float | None:
    """Give running machines a near deadline. Returns that time, None if no machine runs."""
    until = None
    left_s = min(max(LEAST_LEFT_S, context.wanted.idle), context.wanted.max_hours * HOUR_S)
    views = {view.name: view for view in await context.cloud.list(context.record.name)}
    for host in await context.record.hosts():
        view = views.get(host.name)
        if view is not None and view.power is Power.RUNNING:
            await MachineDeadline(context, MachineRecord(context, host)).expire(view, left_s)
            until = await context.record.now() + left_s
    return until


async def stop_idle(context: PoolContext) -> None:
    """Where deadlines cannot be moved: let the pool be stopped as a person would. A run that comes later wakes it."""
    pool, store = context.record.name, context.record.store
    work = await context.record.call(store.hosts.work)
    idle = [host.name for host in await context.record.hosts() if host.name not in work]
    stopped = replace(context.wanted, stopped_at=await context.record.now())
    await context.record.call(store.pools.amend, pool, stopped.to_json())
    reason = "no run needs it, and its deadline is far"
    await context.record.call(store.hosts.set_desired, pool, idle, DesiredState.GONE, reason)
