"""Unusable machines: they are stopped, so that they cost nothing, and replaced, within limits.

Of no use is a machine in quarantine, and one that the run has given up: it does not answer, or has failed every canary. It is
deallocated, not deleted: its disk keeps what has ended there and is not collected yet, and what a person needs to find out
what is wrong. `pool start` lets it prove itself again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from msgspec.structs import replace

from evalfleet.core.hosts.lifecycle import HOUR_S
from evalfleet.model import AttemptState, DesiredState, HostState, HostWork, PoolHost
from evalfleet.pools.context import PoolContext
from evalfleet.pools.machine.facts import facts_of
from evalfleet.pools.machine.record import MachineRecord

REPLACED_LEAST = 2  # machines that a pool replaces in an hour, however small it is
REPLACED_SHARE = 4  # else one in so many: what made so many unwell would make the next ones so, too


def is_aside(host: PoolHost) -> bool:
    """Whether it was stopped because it is of no use: no run starts it again."""
    return facts_of(host).unwell is not None


def is_replaced(host: PoolHost) -> bool:
    """Whether another machine has taken its place, or takes it."""
    return facts_of(host).ends_soon or (is_aside(host) and facts_of(host).replaced)


async def set_aside(
    context: PoolContext, hosts: Iterable[PoolHost], given_up: Mapping[str, str], work: Mapping[str, Sequence[HostWork]]
) -> None:
    """Stop what is of no use. A machine on which another run's attempts live is left until that run gives it up, too."""
    for host in hosts:
        live = [one for one in work.get(host.name, ()) if one.state is not AttemptState.COLLECTING]
        if host.desired is not DesiredState.RUNNING or live:
            continue
        machine = MachineRecord(context, host)
        if host.state is HostState.READY and host.name in given_up:
            await machine.move(state=HostState.QUARANTINED, reason=given_up[host.name])
        if machine.state is HostState.QUARANTINED:
            await _stop(context, machine)


async def _stop(context: PoolContext, machine: MachineRecord) -> None:
    now = await context.record.now()
    may_replace = await _replaced_lately(context, now) < max(REPLACED_LEAST, context.wanted.limit // REPLACED_SHARE)
    if not may_replace and now - machine.host.updated_at < context.wanted.idle:
        return  # a person may want to look at it as it is
    reason = machine.host.reason or "it is in quarantine"
    facts = replace(machine.facts, unwell=reason, unwell_at=now, replaced=may_replace)
    await machine.move(facts=facts)
    said = "another takes its place" if may_replace else "none takes its place: too many were replaced within an hour"
    stop = partial(
        context.record.store.hosts.set_desired,
        context.record.name,
        [machine.name],
        DesiredState.STOPPED,
        f"{reason}; {said}",
        force=True,
    )
    await context.record.call(stop)


async def _replaced_lately(context: PoolContext, now: float) -> int:
    rows = await context.record.hosts(gone=True)
    facts = [facts_of(row) for row in rows]
    return sum(one.replaced and one.unwell_at is not None and now - one.unwell_at < HOUR_S for one in facts)
