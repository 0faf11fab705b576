"""The row of one machine, as its controller reads and writes it."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from evalfleet.core.hosts.lifecycle import Power, metered
from evalfleet.model import DesiredState, HostState, PoolHost
from evalfleet.pools.cloud.records import MachineView, Offering, Verb
from evalfleet.pools.context import PoolContext
from evalfleet.pools.machine.facts import MachineFacts, Operation, facts_of


class MachineRecord:
    """Everything that a controller decides by is in the store or in the cloud; this holds the row as it was read last."""

    def __init__(self, context: PoolContext, host: PoolHost) -> None:
        self._context = context
        self._host = host
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
        written = self._host.facts if facts is None else facts.to_json()
        changed = replace(self._host, facts=written, **changes)
        self._host = await self._context.record.move(changed, self._host.state)

    async def begin(self, verb: Verb, continuation: str) -> None:
        """Write that a long operation was begun."""
        operation = Operation(verb=verb, continuation=continuation, began_at=await self._context.record.now())
        await self.move(facts=replace(self.facts, operation=operation))

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
