"""Asks the cloud for one machine: chooses the next offer, writes the intent down, asks, and waits for what comes of it."""

from __future__ import annotations

import anyio
from msgspec.structs import replace

from evalfleet.core.hosts.lifecycle import HOUR_S
from evalfleet.model import DesiredState, HostState
from evalfleet.pools.cloud.offers import Plan, Stop
from evalfleet.pools.cloud.problems import Refusal
from evalfleet.pools.cloud.protocol import LearnsOfferings
from evalfleet.pools.cloud.records import HostKey, MachineSpec, Offering, Verb
from evalfleet.pools.context import PoolContext
from evalfleet.pools.machine.deadline import MachineDeadline
from evalfleet.pools.machine.facts import Operation, mark_of
from evalfleet.pools.machine.keys import fresh_host_key
from evalfleet.pools.machine.record import MachineRecord

_ORDER_S = 120.0  # for an order and its deadline, where we are interrupted
_FULL_SPREAD_S = 5.0  # pauses that only spread requests are as long as planned where polling takes so long


class MachineCreation:
    """One try. After it the machine's facts hold the running operation, or the problem that the next try must heed."""

    def __init__(self, context: PoolContext, record: MachineRecord, deadline: MachineDeadline) -> None:
        self._context = context
        self._record = record
        self._deadline = deadline

    async def create(self) -> None:
        """Hold one's turn until the machine is there or refused, so that a cloud that fails late is not asked too often."""
        record, purchases = self._record, self._context.purchases
        async with purchases.permission() as allowed:
            await record.refresh()
            if record.desired is not DesiredState.RUNNING:
                return  # not wanted any more when its turn came
            chosen = self._choose()
            if isinstance(chosen, Stop):
                await purchases.refused(chosen)
                await record.move(state=HostState.GONE, reason=chosen.message)
                return
            if not allowed:
                before = record.facts.problem
                reason = before.message if before else "not asked for: the others of its pool were refused"
                await record.move(state=HostState.GONE, reason=reason)
                return
            offering, plan, pause_s = chosen
            await anyio.sleep(pause_s)
            try:
                await self._ask(offering, plan)
                await self._watch()
            except Refusal as error:
                problem = error.problem
                await record.move(facts=replace(record.facts, problem=problem, operation=None), reason=problem.message)
            if record.facts.problem is not None:
                now = await self._context.record.now()
                purchases.failed(record.facts.problem, offering, self._context.offers(), now)
            elif record.desired is DesiredState.RUNNING:
                purchases.succeeded()

    def _choose(self) -> Stop | tuple[Offering, Plan, float]:
        """What to ask for, after how long. An offer that was chosen and perhaps never asked for is chosen again."""
        facts = self._record.facts
        plan = facts.plan or Plan(offers=self._context.offers(facts.wanted_size))
        if plan.current is not None and facts.problem is None:
            return plan.current, plan, 0.0
        plan, step = self._context.purchases.next_offer(plan, facts.problem, self._record.host.updated_at)
        if isinstance(step, Stop):
            return step
        told_s = min(step.after_s, facts.problem.wait_s if facts.problem else 0.0)  # what the cloud itself asked for
        spread_s = (step.after_s - told_s) * min(1.0, self._context.cloud.poll_s / _FULL_SPREAD_S)
        return step.offering, plan, told_s + spread_s

    async def _ask(self, offering: Offering, plan: Plan) -> None:
        """The intent is stored, with the public half of the key that the machine will show, before the cloud is asked."""
        context, record = self._context, self._record
        key = fresh_host_key()
        if isinstance(context.cloud, LearnsOfferings):
            await context.cloud.learn(offering)
        record.set_price(offering)
        before = record.facts
        facts = replace(
            before,
            plan=plan,
            problem=None,
            operation=None,
            size=offering.size,
            region=offering.region,
            spot=offering.spot,
            keys={**before.keys, mark_of(key.public): key.public},
            host_key=None,
            next_key=None,
            address=None,
            deadline_at=None,
            deadline_refused=None,
        )
        await record.move(state=HostState.CREATING, facts=facts, reason=None, readiness_check="arm")
        spec = self._spec(offering, key, await context.image(), await context.record.now())
        await context.cloud.prepare_region(spec.pool, spec.region, spec.owner)
        # An interruption waits for this: a machine that is not written down has no deadline either, and runs for ever.
        with anyio.CancelScope(shield=True, deadline=anyio.current_time() + _ORDER_S):
            now, stops_at = await context.record.now(), await self._deadline.next_at()
            created = await context.cloud.create(spec, stops_at)
            record.set_made(now)
            facts = replace(record.facts, accepted_at=now)
            if created.continuation is not None:  # else it is there already, by the request of an owner that died
                operation = Operation(verb=Verb.CREATE, continuation=created.continuation, began_at=now)
                is_protected = created.deadline_problem is None
                facts = replace(facts, operation=operation, deadline_at=stops_at if is_protected else None)
            await record.move(facts=facts)
            if created.deadline_problem is not None:
                await self._deadline.refused(created.deadline_problem)

    def _spec(self, offering: Offering, key: HostKey, image: str | None, now: float) -> MachineSpec:
        context, name = self._context, self._record.name
        return MachineSpec(
            name=name,
            worker=f"{name}.{mark_of(key.public)}",
            pool=context.record.name,
            run=context.wanted.run or "",
            owner=context.identity.label,
            expires_at=now + context.wanted.max_hours * HOUR_S,
            size=offering.size,
            region=offering.region,
            spot=offering.spot,
            max_price_usd=context.wanted.max_price_usd,
            image=image,
            disk_gb=context.wanted.disk_gb,
            login_key=context.login.public,
            host_key=key,
        )

    async def _watch(self) -> None:
        record = self._record
        while record.facts.operation is not None and record.desired is DesiredState.RUNNING:
            await self._deadline.protect()
            if not await record.look():
                await anyio.sleep(record.pause_s)
            await record.refresh()
