"""The long operation that a machine's cloud is at, such as its creation: it outlives every controller."""

from __future__ import annotations

from msgspec.structs import replace

from evalfleet.model import DesiredState
from evalfleet.pools.cloud.problems import Action, Cause, Problem, Refusal
from evalfleet.pools.cloud.records import Offering, Verb
from evalfleet.pools.context import PoolContext
from evalfleet.pools.machine.record import MachineRecord

SLOW_S = 600.0  # after it an operation is said to take long
OPERATION_S = 1800.0  # after it one is given up


class Failed(Refusal):
    """An operation that the cloud accepted has failed."""


class MachineOperation:
    """The operation that the machine's facts name, if any."""

    def __init__(self, context: PoolContext, record: MachineRecord) -> None:
        self._context = context
        self._record = record
        self.pause_s = context.cloud.poll_s  # until the next look: as the cloud asks, where it does

    @property
    def must_end(self) -> bool:
        """Whether it must end before anything else is ordered; only a machine that is to go need not start first."""
        operation = self._record.facts.operation
        return operation is not None and (
            self._record.desired is not DesiredState.GONE or operation.verb == Verb.DELETE
        )

    async def look(self) -> bool:
        """Look once how far it is. True: it is over, well or not; a failed creation leaves its problem in the facts.

        Raises Failed for any other operation that failed.
        """
        record = self._record
        facts = record.facts
        assert facts.operation is not None
        verb = Verb(facts.operation.verb)
        offering = Offering(size=facts.size, region=facts.region, spot=facts.spot)
        progress = await self._context.cloud.poll(verb, record.name, facts.operation.continuation, offering)
        problem = progress.problem
        if not progress.done:
            self.pause_s = max(self._context.cloud.poll_s, progress.look_again_s)
            return await self._ends_late(verb)
        if problem is None or verb is not Verb.CREATE:
            await record.move(facts=replace(facts, operation=None))
        else:
            await record.move(facts=replace(facts, operation=None, problem=problem), reason=problem.message)
        if problem is not None and verb is not Verb.CREATE:
            raise Failed(problem)
        return True

    async def _ends_late(self, verb: Verb) -> bool:
        """Give up an operation that takes longer than any does, and say meanwhile that it takes long."""
        record, facts = self._record, self._record.facts
        began_at = facts.operation.began_at if facts.operation else None
        took_s = await self._context.record.now() - (began_at or record.host.updated_at)
        limit_s = self._context.wanted.deadline.get("arm", OPERATION_S)
        said = f"the cloud takes long to {verb} it: over {min(SLOW_S, limit_s) / 60:g} min"
        if took_s < limit_s:
            if took_s >= SLOW_S and record.host.reason != said:
                await record.move(reason=said)
            return False
        said = f"the cloud did not {verb} it within {limit_s / 60:g} min"
        problem = Problem(cause=Cause.PROVISIONING, action=Action.NEXT_REGION, message=said, avoid_s=SLOW_S)
        if verb is not Verb.CREATE:
            await record.move(facts=replace(facts, operation=None))
            raise Failed(problem)
        await record.move(facts=replace(facts, operation=None, problem=problem), reason=said)
        return True
