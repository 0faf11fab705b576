"""The long operation that a machine's cloud is at, such as its creation: it outlives every controller."""

from __future__ import annotations

from msgspec.structs import replace

from evalfleet.model import DesiredState
from evalfleet.pools.cloud.problems import Refusal
from evalfleet.pools.cloud.records import Offering, Verb
from evalfleet.pools.context import PoolContext
from evalfleet.pools.machine.record import MachineRecord


class Failed(Refusal):
    """An operation that the cloud accepted has failed."""


class MachineOperation:
    """The operation that the machine's facts name, if any."""

    def __init__(self, context: PoolContext, record: MachineRecord) -> None:
        self._context = context
        self._record = record

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
            return False
        if problem is None or verb is not Verb.CREATE:
            await record.move(facts=replace(facts, operation=None))
        else:
            await record.move(facts=replace(facts, operation=None, problem=problem), reason=problem.message)
        if problem is not None and verb is not Verb.CREATE:
            raise Failed(problem)
        return True
