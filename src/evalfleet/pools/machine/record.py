"""The row of one machine, as its controller reads and writes it."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from evalfleet.core.hosts.lifecycle import Power, metered
from evalfleet.model import DesiredState, HostState, PoolHost
from evalfleet.pools.cloud.problems import Action, Cause, Problem, Refusal
from evalfleet.pools.cloud.records import MachineView, Offering, Verb
from evalfleet.pools.context import PoolContext
from evalfleet.pools.machine.facts import MachineFacts, Operation, facts_of

SLOW_S = 600.0  # after it an operation is said to take long
OPERATION_S = 1800.0  # after it one is given up


class Failed(Refusal):
    """An operation that the cloud accepted has failed."""


class MachineRecord:
    """Everything that a controller decides by is in the store or in the cloud; this holds the row as it was read last."""

    def __init__(self, context: PoolContext, host: PoolHost) -> None:
        self._context = context
        self._host = host
        self.pause_s = context.cloud.poll_s  # until the next look at an operation: as the cloud asks, where it does
        self._powers: set[Power | None] = set()  # seen by us: what happened before cannot be told exactly

    @property
    def host(self) -> PoolHost:
        return self._host

    @property
    def name(self) -> str:
        return self._host.name

    @property
    def state(self) -> HostState:
        return self._host.state

    @property
    def desired(self) -> DesiredState:
        return self._host.desired

    @property
    def facts(self) -> MachineFacts:
        return facts_of(self._host)

    async def refresh(self) -> None:
        """Read the row again: people change its desired state. Raises NotOwned."""
        self._host = await self._context.record.host(self.name)

    async def move(self, *, facts: MachineFacts | None = None, **changes: Any) -> None:
        """Write how far the machine is. Raises NotOwned."""
        pool, before = self._context.record, self._host.state
        written = self._host.facts if facts is None else facts.to_json()
        changed = replace(self._host, facts=written, **changes)
        moved = await pool.call(pool.store.hosts.move, pool.taken, before, changed)
        if moved is None:
            raise pool.not_owned()
        self._host = moved
        pool.tell(moved)

    # The long operation that its cloud is at: it outlives every controller

    async def begin(self, verb: Verb, continuation: str) -> None:
        """Write that a long operation was begun."""
        operation = Operation(verb=verb, continuation=continuation, began_at=await self._context.record.now())
        await self.move(facts=replace(self.facts, operation=operation))

    @property
    def must_end(self) -> bool:
        """Whether it must end before anything else is ordered; only a machine that is to go need not start first."""
        operation = self.facts.operation
        return operation is not None and (self.desired is not DesiredState.GONE or operation.verb == Verb.DELETE)

    async def look(self) -> bool:
        """Look once how far it is. True: it is over, well or not; a failed creation leaves its problem in the facts.

        Raises Failed for any other operation that failed.
        """
        facts = self.facts
        assert facts.operation is not None
        verb = Verb(facts.operation.verb)
        offering = Offering(size=facts.size, region=facts.region, spot=facts.spot)
        progress = await self._context.cloud.poll(verb, self.name, facts.operation.continuation, offering)
        problem = progress.problem
        if not progress.done:
            self.pause_s = max(self._context.cloud.poll_s, progress.look_again_s)
            problem = await self._lateness(verb, waits=progress.waits)
            if problem is None:
                return False
        facts = replace(self.facts, operation=None)
        if problem is not None and verb is Verb.CREATE:
            await self.move(facts=replace(facts, problem=problem), reason=problem.message)
            return True
        await self.move(facts=facts)
        if problem is not None:
            raise Failed(problem)
        return True

    async def _lateness(self, verb: Verb, *, waits: str | None) -> Problem | None:
        """Why an operation is given up that takes longer than any does; one that only takes long is said to, or why it waits."""
        operation = self.facts.operation
        began_at = operation.began_at if operation else None
        took_s = await self._context.record.now() - (began_at or self._host.updated_at)
        limit_s = self._context.wanted.deadline.get(self._context.first_check, OPERATION_S)
        if took_s >= limit_s:
            said = f"the cloud did not {verb} it within {limit_s / 60:g} min" + (f": {waits}" if waits else "")
            return Problem(cause=Cause.PROVISIONING, action=Action.NEXT_REGION, message=said, avoid_s=SLOW_S)
        said = waits or f"the cloud takes long to {verb} it: over {min(SLOW_S, limit_s) / 60:g} min"
        if (waits is not None or took_s >= SLOW_S) and self._host.reason != said:
            await self.move(reason=said)
        return None

    # What it costs

    def see(self, view: MachineView | None) -> None:
        """Remember that the cloud showed it so."""
        self._powers.add(view.power if view else None)

    def set_price(self, offering: Offering) -> None:
        """Written with the next move."""
        self._host = self._context.priced(self._host, offering)

    def set_made(self, at: float) -> None:
        """Its disk costs from then on. Written with the next move."""
        self._host = replace(self._host, made_at=self._host.made_at or at)

    async def start_meter(self) -> None:
        """The machine runs. Written with the next move."""
        now = await self._context.record.now()
        # One that ran already when we came has done so since it was ordered, which was written down just before.
        since = now if len(self._powers) > 1 else self._host.updated_at
        self.set_made(since)
        self._host = metered(self._host, since, running=True)

    async def stop_meter(self, **changes: Any) -> None:
        """The machine does not run any more. Since when, where it stopped unobserved, is a fair guess."""
        now, deadline_at = await self._context.record.now(), self.facts.deadline_at
        at = now if deadline_at is None else min(now, deadline_at)
        if self._host.state is HostState.DRAINING and Power.RUNNING not in self._powers:
            at = min(at, self._host.updated_at)  # when it was ordered
        self._host = metered(self._host, at, running=False)
        await self.move(**changes)
