"""Asks the cloud for one machine: chooses the next offer, writes the intent down, asks, and waits for what comes of it."""

from __future__ import annotations

import anyio
from msgspec.structs import replace

from evalfleet.core.hosts.lifecycle import HOUR_S
from evalfleet.model import DesiredState, HostState
from evalfleet.pools.cloud.problems import Refusal
from evalfleet.pools.cloud.protocol import LearnsOfferings
from evalfleet.pools.cloud.purchases import Plan, Stop, Try
from evalfleet.pools.cloud.records import Creation, HostKey, MachineSpec, Offering, Verb
from evalfleet.pools.context import PoolContext
from evalfleet.pools.machine.deadline import MachineDeadline
from evalfleet.pools.machine.facts import Operation, mark_of
from evalfleet.pools.machine.keys import fresh_host_key
from evalfleet.pools.machine.record import MachineRecord

_ORDER_S = 120.0  # for an order and its deadline, where we are interrupted


class MachineCreation:
    """One try. After it the machine's facts hold the running operation, or the problem that the next try must heed."""

    def __init__(self, context: PoolContext, record: MachineRecord, deadline: MachineDeadline) -> None:
        self._context = context
        self._record = record
        self._deadline = deadline

    async def create(self) -> None:
        """Hold one's turn until the machine is there or refused, so that a cloud that fails late is not asked too often."""
        context, record, purchases = self._context, self._record, self._context.purchases
        async with purchases.permission() as allowed:
            await record.refresh()
            if record.desired is not DesiredState.RUNNING:
                return  # not wanted any more when its turn came
            plan = record.facts.plan or Plan(offers=context.offers(record.facts.wanted_size))
            plan, step = purchases.next_offer(plan, record.facts.problem, record.host.updated_at)
            if isinstance(step, Stop) or not allowed:
                await self._give_up(step)
                return
            await anyio.sleep(step.after_s)
            try:
                spec = await self._with_pilot(await self._write_intent(step.offering, plan))
                await context.cloud.prepare_region(spec.pool, spec.region, spec.owner)
                # An interruption waits for this: a machine that is not written down has no deadline either, and runs for ever.
                with anyio.CancelScope(shield=True, deadline=anyio.current_time() + _ORDER_S):
                    now, stops_at = await context.record.now(), await self._deadline.next_at()
                    await self._write_order(await context.cloud.create(spec, stops_at), now, stops_at)
                while record.facts.operation is not None and record.desired is DesiredState.RUNNING:
                    await self._deadline.protect()
                    if not await record.look():
                        await anyio.sleep(record.pause_s)
                    await record.refresh()
            except Refusal as error:
                problem = error.problem
                await record.move(facts=replace(record.facts, problem=problem, operation=None), reason=problem.message)
            if record.facts.problem is not None:
                now = await context.record.now()
                purchases.failed(record.facts.problem, step.offering, context.offers(), now)
            elif record.desired is DesiredState.RUNNING:
                purchases.succeeded()

    async def _give_up(self, step: Stop | Try) -> None:
        """Nothing can be had, or the pool asks for no more."""
        if isinstance(step, Stop):
            await self._context.purchases.refused(step)
            reason = step.message
        else:
            before = self._record.facts.problem
            reason = before.message if before else "not asked for: the others of its pool were refused"
        if self._context.mailbox is not None:
            await self._context.mailbox.delete(self._record.name, len(self._record.facts.keys))
        await self._record.move(state=HostState.GONE, reason=reason)

    async def _write_intent(self, offering: Offering, plan: Plan) -> MachineSpec:
        """Store what is asked for, with the public half of the key that the machine will show, before the cloud is asked."""
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
            box=None,
            pilot=None,
            deadline_at=None,
            ends_soon=False,
            deadline_refused=None,
        )
        await record.move(state=HostState.CREATING, facts=facts, reason=None, readiness_check=context.first_check)
        return self._spec(offering, key, await context.image(), await context.record.now())

    async def _with_pilot(self, spec: MachineSpec) -> MachineSpec:
        """The spec with its pilot, where the machine cannot be called: its box is there, and written down, before it is asked for."""
        context, record = self._context, self._record
        if context.mailbox is None:
            return spec
        mark = spec.worker.rpartition(".")[2]
        generation, now = record.facts.generation_of(mark), await context.record.now()
        await context.mailbox.delete(spec.name, generation - 1)  # of earlier tries, which came to nothing
        address, pilot = await context.mailbox.prepare(spec.name, generation, spec.slots, now)
        await record.move(facts=replace(record.facts, boxes={**record.facts.boxes, mark: address}))
        return replace(spec, pilot=pilot)

    async def _write_order(self, created: Creation, now: float, stops_at: float) -> None:
        """Store what the cloud has accepted, and when its deadline is."""
        record = self._record
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
            pool_limit=context.wanted.limit,
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
            slots=context.wanted.slots,
            images=context.images if context.mailbox is not None else (),
            kvm=context.wanted.kvm,
            drain_s=context.drain_s,
        )
