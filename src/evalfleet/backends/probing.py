"""Asks the hosts of a pool, all at the same time, what they have."""

from __future__ import annotations

from collections.abc import Sequence

import anyio

from evalfleet.backends.reaching import Absent, Reachable
from evalfleet.errors import BackendError
from evalfleet.layout import Home
from evalfleet.model import JsonObject


async def probe(hosts: Sequence[Reachable | Absent], home: Home) -> dict[str, JsonObject]:
    """What each host says of itself, by name: `reachable`, and what it has or why not."""
    from evalfleet.backends.ssh import SshBackend, SshSettings

    found: dict[str, JsonObject] = {}

    async def ask(host: Reachable) -> None:
        settings = SshSettings(trust_first_use=host.trust_first_use, known_hosts=host.known_hosts)
        try:
            found[host.name] = {"reachable": True, **await SshBackend(home, host.spec, settings).look()}
        except BackendError as error:
            found[host.name] = {"reachable": False, "error": str(error)}

    async with anyio.create_task_group() as group:
        for host in hosts:
            if isinstance(host, Absent):
                found[host.name] = {"reachable": False, "error": host.why}
            else:
                group.start_soon(ask, host)
    return found
