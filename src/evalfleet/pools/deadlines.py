"""Moves the deadlines of a pool's machines: away while somebody is there, near when nobody is any more."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial

from evalfleet.azure.responses import VmView
from evalfleet.azure.vm_facts import facts_of
from evalfleet.azure.vms import Refusal
from evalfleet.core.hosts.lifecycle import HOUR_S
from evalfleet.model import HostState, PoolHost
from evalfleet.pools.machine.context import LEAST_LEFT_S, Ground
from evalfleet.pools.machine.controller import RENEW_AT, Tender

_UNMOVED = "its deadline cannot be moved"


async def move_deadlines(ground: Ground, hosts: Iterable[PoolHost], views: Mapping[str, VmView]) -> None:
    """Move those of ready machines that are near, or later than the budget lasts; what is refused is told, and tried again."""
    now = await ground.now()
    length_s = await ground.deadline_s()
    for host in hosts:
        at, view = facts_of(host).deadline_at, views.get(host.name)
        left_s = 0.0 if at is None else at - now
        is_right = (1 - RENEW_AT) * length_s <= left_s <= (1 + RENEW_AT) * length_s
        if view is None or host.state is not HostState.READY or is_right:
            continue
        tender = Tender(ground, host)
        try:
            await tender.renew(view)
            if host.reason is not None and host.reason.startswith(_UNMOVED):
                await tender.move(reason=None)
        except Refusal as error:
            said = f"{_UNMOVED}: {error}"
            if host.reason != said:
                await tender.move(reason=said)


async def let_stop(ground: Ground) -> float | None:
    """Let the machines that run stop by themselves soon. Returns when that will be, None where none runs."""
    until = None
    left_s = min(max(LEAST_LEFT_S, ground.wanted.idle_s), ground.wanted.max_hours * HOUR_S)
    views = {view.name: view for view in await ground.vms.list(ground.pool.name)}
    for host in await ground.clerk.call(partial(ground.store.hosts, ground.pool.name)):
        view = views.get(host.name)
        if view is not None and view.power == "running":
            await Tender(ground, host).expire(view, left_s)
            until = await ground.now() + left_s
    return until
