"""Machines that run, as their cloud says, and whose pilots say nothing any more: they are stuck, and replaced."""

from __future__ import annotations

from collections.abc import Iterable

import anyio
import msgspec
from msgspec.structs import replace

from evalfleet.hosts.mailbox.costs import BoxCosts, box_costs
from evalfleet.hosts.mailbox.pilot_view import PilotFacts, PilotView
from evalfleet.model import HostState, PoolHost
from evalfleet.pilot.carrier import CarrierError
from evalfleet.pilot.keys import BadSignature
from evalfleet.pools.context import PoolContext
from evalfleet.pools.machine.facts import facts_of
from evalfleet.pools.machine.mailbox import Mailbox
from evalfleet.pools.machine.record import MachineRecord

SILENCE_S = 600.0
LOOKS = 10  # at each pilot's beats, in the time after which it is given up
_NEWS = 0.1  # a change by this share
_SPEAKING = (HostState.READY, HostState.QUARANTINED)


class SilenceWatch:
    """Used in the loop's thread of the pool's owner. What a new owner has not seen itself, it waits for."""

    def __init__(self, context: PoolContext, mailbox: Mailbox) -> None:
        self._context = context
        self._mailbox = mailbox
        self._heard: dict[str, tuple[object, float]] = {}  # machine -> its last beat, and when that was new
        self._look_at = 0.0

    async def look(self, hosts: Iterable[PoolHost]) -> None:
        """Give up machines that are stuck: the cloud ends them, and others take their places. Raises NotOwned."""
        limit_s = self._context.wanted.deadline.get("silence", SILENCE_S)
        if anyio.current_time() < self._look_at:
            return
        self._look_at = anyio.current_time() + limit_s / LOOKS
        speaking = [host for host in hosts if host.state in _SPEAKING and facts_of(host).pilot is not None]
        self._heard = {host.name: self._heard[host.name] for host in speaking if host.name in self._heard}
        for host in speaking:
            silent_s = anyio.current_time() - await self._since(host)
            if silent_s >= limit_s:
                reason = (
                    f"its job says that it runs, and its pilot has said nothing for {limit_s / 60:g} min: it is stuck"
                )
                record = MachineRecord(self._context, host)
                facts = replace(record.facts, operation=None, lost_at=await self._context.record.now())
                await record.stop_meter(state=HostState.LOST, facts=facts, reason=f"{reason}; another takes its place")

    async def _since(self, host: PoolHost) -> float:
        """Since when the pilot's last beat is known; also notes what its box costs. While that cannot be read, the pilot is not
        called silent."""
        facts, now = facts_of(host), anyio.current_time()
        assert facts.box is not None
        known = msgspec.convert(facts.pilot, PilotFacts)
        try:
            beat = await PilotView(self._mailbox.carrier(facts.box), facts.generation, known).beat()
        except (CarrierError, BadSignature):
            self._heard.pop(host.name, None)
            return now
        if beat is not None:
            await self._note(host, box_costs(beat, facts.box))
        told = (facts.generation, None if beat is None else beat.number)
        if host.name not in self._heard or self._heard[host.name][0] != told:
            self._heard[host.name] = told, now
        return self._heard[host.name][1]

    async def _note(self, host: PoolHost, costs: BoxCosts) -> None:
        """Write what its box costs, where that is news."""
        record = MachineRecord(self._context, host)
        await record.refresh()  # reading the box took a while
        known = record.facts.box_costs
        if known is None or abs(costs.requests_per_hour - known.requests_per_hour) > _NEWS * known.requests_per_hour:
            await record.move(facts=replace(record.facts, box_costs=costs))
