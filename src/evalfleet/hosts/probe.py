"""Asks all hosts of a pool at the same time for their resources, and for their guests."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import anyio

from evalfleet.errors import BackendError
from evalfleet.hosts.access import ReachableHost, UnavailableHost
from evalfleet.layout import Home
from evalfleet.model import JsonObject

LIMIT_S = 20.0  # for one host; a machine that is there answers within a few


async def probe(
    hosts: Sequence[ReachableHost | UnavailableHost],
    home: Home,
    limit_s: float = LIMIT_S,
    guests: JsonObject | None = None,
) -> dict[str, JsonObject]:
    """The answer of each host by name: whether it is `reachable`, and its resources or the error. A host that does not answer in
    time counts as unreachable and does not delay the others.

    Args:
        guests: orders for a visitor (`benchmarks.screens.guest_orders`). The answer then has `guests`: the rows of those that
            were found, or in `guests_error` why they could not be asked.
    """
    found: dict[str, JsonObject] = {}

    async def ask(host: ReachableHost) -> None:
        told: JsonObject = {}
        async with anyio.create_task_group() as group:  # side by side: all of it has one limit
            if guests is not None:
                group.start_soon(_note, told, "guests", limit_s, partial(_guests, host, home, guests))
            group.start_soon(_note, told, "look", limit_s, partial(_look, host, home))
        if "look" in told:
            found[host.name] = {"reachable": True, **told.pop("look"), **told}
        else:
            found[host.name] = {"reachable": False, "error": told["look_error"]}

    async with anyio.create_task_group() as group:
        for host in hosts:
            if isinstance(host, UnavailableHost):
                found[host.name] = {"reachable": False, "error": host.why}
            else:
                group.start_soon(ask, host)
    return found


async def _note(told: JsonObject, name: str, limit_s: float, asked: Callable[[], Awaitable[Any]]) -> None:
    """Write down the answer by its name, or the error."""
    try:
        with anyio.fail_after(limit_s):
            told[name] = await asked()
    except TimeoutError:
        told[f"{name}_error"] = f"does not answer within {limit_s:g} s"
    except BackendError as error:
        told[f"{name}_error"] = str(error)


async def _look(host: ReachableHost, home: Home) -> JsonObject:
    from evalfleet.hosts.ssh.backend import SshBackend, SshSettings

    settings = SshSettings(trust_first_use=host.trust_first_use, known_hosts=host.known_hosts)
    return await SshBackend(home, host.spec, settings).look()


async def _guests(host: ReachableHost, home: Home, orders: JsonObject) -> list[JsonObject]:
    from evalfleet.hosts.ssh.visit.connection import show_logs

    async with show_logs(host, home, lambda _: None, orders) as lines:
        return [line async for line in lines]
