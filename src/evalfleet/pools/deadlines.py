"""Moves the deadlines of a pool's machines: later while there is a controller, soon when there is none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from evalfleet.core.hosts.lifecycle import HOUR_S, Power
from evalfleet.model import HostState, PoolHost
from evalfleet.pools.cloud.problems import Refusal
from evalfleet.pools.cloud.records import MachineView
from evalfleet.pools.context import LEAST_LEFT_S, PoolContext
from evalfleet.pools.machine.deadline import RENEW_AT, MachineDeadline
from evalfleet.pools.machine.facts import facts_of
from evalfleet.pools.machine.record import MachineRecord


async def move_deadlines(context: PoolContext, hosts: Iterable[PoolHost], views: Mapping[str, MachineView]) -> None:
    """Move those of ready machines that are near, or later than the budget lasts; refusals are reported and tried again."""
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
