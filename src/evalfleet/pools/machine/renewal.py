"""Replaces machines that are jobs before their time is over: another is asked for, then the old one takes no more tasks."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from functools import partial

from msgspec.structs import replace

from evalfleet.model import DesiredState, HostState, PoolHost
from evalfleet.pools.cloud.records import MachineView
from evalfleet.pools.context import PoolContext
from evalfleet.pools.machine.record import MachineRecord

LEAD = 2.0  # times the time for draining, before the end: then the next one is asked for
_NEWS_S = 60.0


async def renew_jobs(context: PoolContext, hosts: Iterable[PoolHost], views: Mapping[str, MachineView]) -> None:
    """Ask for the successors of jobs that end soon, and drain those that end sooner. What still runs when a job ends is `preempted`.

    Raises NotOwned.
    """
    now = await context.record.now()
    for host in hosts:
        ends_at = views[host.name].ends_at if host.name in views else None
        if ends_at is None or host.state is not HostState.READY or host.desired is not DesiredState.RUNNING:
            continue
        machine = MachineRecord(context, host)
        known_at, left_s = machine.facts.deadline_at, ends_at - now
        if known_at is None or abs(known_at - ends_at) > _NEWS_S:
            await machine.move(facts=replace(machine.facts, deadline_at=ends_at))
        if left_s < LEAD * context.drain_s and not machine.facts.ends_soon:
            await machine.move(facts=replace(machine.facts, ends_soon=True))
        if left_s < context.drain_s:
            when = time.strftime("%H:%M", time.localtime(ends_at))
            reason = f"the time of its job is over at {when}; it takes no more tasks"
            hosts_table = context.record.store.hosts
            await context.record.call(
                partial(hosts_table.set_desired, context.record.name, [host.name], DesiredState.GONE, reason)
            )
