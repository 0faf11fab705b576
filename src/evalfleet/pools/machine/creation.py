"""Asks the cloud for one VM: chooses the next offer, writes the intent down, asks, and waits for what comes of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
from msgspec.structs import replace

from evalfleet.azure.hostkey import fresh_host_key
from evalfleet.azure.offers import Offering, Plan, Stop, next_offer
from evalfleet.azure.requests import vm
from evalfleet.azure.requests.vm import VmSpec
from evalfleet.azure.vm_facts import Operation, mark_of
from evalfleet.azure.vms import Network, Refusal, Verb
from evalfleet.core.hosts.lifecycle import HOUR_S
from evalfleet.model import DesiredState, HostState

if TYPE_CHECKING:
    from evalfleet.pools.machine.controller import MachineController

_ORDER_S = 120.0  # for an order and its deadline, where we are interrupted
_FULL_SPREAD_S = 5.0  # pauses that only spread requests are as long as planned where polling takes so long


class MachineCreation:
    """One try. After it the host's facts hold the running operation, or the problem that the next try must heed."""

    def __init__(self, machine: MachineController) -> None:
        self._tender = machine
        self._context = machine.context

    async def create(self) -> None:
        """Hold one's turn until the VM is there or refused, so that a cloud that fails late is not asked too often."""
        machine = self._tender
        async with self._context.permission() as allowed:
            machine.host = await self._context.fresh(machine.host)
            if machine.host.desired is not DesiredState.RUNNING:
                return  # not wanted any more when its turn came
            chosen = self._choose()
            if not allowed and not isinstance(chosen, Stop):
                before = machine.facts.problem
                reason = before.message if before else "not asked for: the others of its pool were refused"
                await machine.move(state=HostState.GONE, reason=reason)
                return
            if isinstance(chosen, Stop):
                await self._context.refused(chosen)
                await machine.move(state=HostState.GONE, reason=chosen.message)
                return
            offering, pause_s = chosen
            await anyio.sleep(pause_s)
            try:
                await self._ask(offering)
                await self._watch()
            except Refusal as error:
                problem = error.problem
                await machine.move(
                    facts=replace(machine.facts, problem=problem, operation=None), reason=problem.message
                )
            if machine.facts.problem is not None:
                self._context.failed(machine.facts.problem, offering, await self._context.now())
            elif machine.host.desired is DesiredState.RUNNING:
                self._context.made()

    def _choose(self) -> Stop | tuple[Offering, float]:
        """What to ask for, after how long. An offer that was chosen and perhaps never asked for is chosen again."""
        facts, context = self._tender.facts, self._context
        self._plan = facts.plan or Plan(offers=context.wanted.offers())
        if self._plan.current is not None and facts.problem is None:
            return self._plan.current, 0.0
        now = self._tender.host.updated_at
        self._plan, context.closed, step = next_offer(self._plan, facts.problem, context.closed, now, context.rng)
        if isinstance(step, Stop):
            return step
        told_s = min(step.after_s, facts.problem.wait_s if facts.problem else 0.0)  # what the cloud itself asked for
        spread_s = (step.after_s - told_s) * min(1.0, context.azure.poll_s / _FULL_SPREAD_S)
        return step.offering, told_s + spread_s

    async def _ask(self, offering: Offering) -> None:
        """The intent is stored, with the public half of the key that the VM will show, before the cloud is asked."""
        context, machine = self._context, self._tender
        key = fresh_host_key()
        mark = mark_of(key.public)
        machine.host = context.priced(machine.host, offering)
        before = machine.facts
        facts = replace(
            before,
            plan=self._plan,
            problem=None,
            operation=None,
            size=offering.size,
            region=offering.region,
            spot=offering.spot,
            keys={**before.keys, mark: key.public},
            host_key=None,
            next_key=None,
            address=None,
            deadline_at=None,
            deadline_refused=None,
        )
        await machine.move(state=HostState.CREATING, facts=facts, reason=None, readiness_check="arm")
        image = await context.image()
        network = await context.network(offering.region)
        now = await context.now()
        spec = VmSpec(
            name=machine.host.name,
            worker=f"{machine.host.name}.{mark}",
            pool=context.pool.name,
            run=context.wanted.run or "",
            owner=context.owner,
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
        # Whoever interrupts us waits for this: a VM that nobody knows of has no deadline either, and runs for ever.
        with anyio.CancelScope(shield=True, deadline=anyio.current_time() + _ORDER_S):
            await self._order(spec, network, now)

    async def _order(self, spec: VmSpec, network: Network, now: float) -> None:
        """Have the VM made, and from the moment that this is accepted have a deadline that does not need us."""
        context, machine = self._context, self._tender
        continuation = await context.vms.create(spec, network)
        if machine.host.made_at is None:
            machine.host = replace(machine.host, made_at=now)
        facts = replace(machine.facts, accepted_at=now)
        if continuation is None:
            await machine.move(
                facts=facts
            )  # there already, by the request of an owner that died; the VM tells the rest
        else:
            await machine.move(facts=replace(facts, operation=Operation(verb=Verb.CREATE, continuation=continuation)))
        await machine.protect(vm.tags(spec))

    async def _watch(self) -> None:
        machine = self._tender
        while machine.facts.operation is not None and machine.host.desired is DesiredState.RUNNING:
            await machine.protect()
            if not await machine.look():
                await anyio.sleep(self._context.azure.poll_s)
            machine.host = await self._context.fresh(machine.host)
