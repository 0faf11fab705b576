"""Asks all hosts of a pool at the same time for their resources."""

from __future__ import annotations

from collections.abc import Sequence

import anyio

from evalfleet.errors import BackendError
from evalfleet.hosts.access import ReachableHost, UnavailableHost
from evalfleet.layout import Home
from evalfleet.model import JsonObject

LIMIT_S = 20.0  # for one host; a machine that is there answers within a few


async def probe(
    hosts: Sequence[ReachableHost | UnavailableHost], home: Home, limit_s: float = LIMIT_S
) -> dict[str, JsonObject]:
    """The answer of each host by name: whether it is `reachable`, and its resources or the error. A host that does not answer in
    time counts as unreachable and does not delay the others."""
    from evalfleet.hosts.ssh.backend import SshBackend, SshSettings

    found: dict[str, JsonObject] = {}

    async def ask(host: ReachableHost) -> None:
        settings = SshSettings(trust_first_use=host.trust_first_use, known_hosts=host.known_hosts)
        try:
            with anyio.fail_after(limit_s):
                found[host.name] = {"reachable": True, **await SshBackend(home, host.spec, settings).look()}
        except TimeoutError:
            found[host.name] = {"reachable": False, "error": f"does not answer within {limit_s:g} s"}
        except BackendError as error:
            found[host.name] = {"reachable": False, "error": str(error)}

    async with anyio.create_task_group() as group:
        for host in hosts:
            if isinstance(host, UnavailableHost):
                found[host.name] = {"reachable": False, "error": host.why}
            else:
                group.start_soon(ask, host)
    return found
