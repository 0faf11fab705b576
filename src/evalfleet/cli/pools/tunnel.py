"""`evalfleet pool tunnel`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

from evalfleet.answers.machines import OpenTunnel
from evalfleet.cli.pools.shared.hosts import one, require_library, say, until_told
from evalfleet.cli.pools.shared.pools import home_of
from evalfleet.cli.shared.document import print_answer
from evalfleet.cli.shared.options import home_option, json_option

if TYPE_CHECKING:
    from evalfleet.hosts.access import ReachableHost
    from evalfleet.hosts.ssh.visit.tunnel import TunnelTarget
    from evalfleet.layout import Home

WAY = re.compile(
    r"(?:(?P<host>\[[0-9A-Fa-f:.]+\]|[^\s:\[\]]*[^\s:\[\]\d][^\s:\[\]]*):)?(?P<port>\d{1,5})(?::(?P<local>\d{1,5}))?"
)


@click.command("tunnel")
@click.argument("worker", metavar="W")
@click.argument("way", metavar="PORT[:LOCALPORT]")
@json_option
@home_option
def command(worker: str, way: str, as_json: bool, home: str | None) -> None:
    """Forward a port of a host to this machine until Ctrl-C.

    Only programs on this machine can use it. HOST:PORT[:LOCALPORT] leads to a port of another machine, as the host sees
    it. LOCALPORT is the same number by default, or another if that is taken. A broken connection is opened again.
    """
    import anyio

    match = WAY.fullmatch(way)
    ports = [int(text) for text in (match["port"], match["local"]) if text is not None] if match else []
    if match is None or not all(1 <= port <= 65535 for port in ports):
        raise click.UsageError(
            f"{way!r} is not understood; write PORT, PORT:LOCALPORT or HOST:PORT, such as 8006:9006."
        )
    host = one(home, worker)
    require_library()
    from evalfleet.hosts.ssh.visit.tunnel import TunnelTarget

    target = TunnelTarget(port=ports[0], host=(match["host"] or "localhost").strip("[]"))
    anyio.run(_serve, host, home_of(home), target, ports[1] if len(ports) > 1 else None, as_json)


async def _serve(host: ReachableHost, home: Home, target: TunnelTarget, local_port: int | None, as_json: bool) -> None:
    import anyio

    from evalfleet.hosts.base import single_error
    from evalfleet.hosts.ssh.visit.tunnel import LOCAL, Tunnel

    with single_error():
        async with anyio.create_task_group() as group:
            port: int = await group.start(Tunnel(host, home, target, say).serve, local_port)
            address = f"{LOCAL}:{port}"
            told = OpenTunnel(host=host.name, target=str(target), address=address)
            print_answer(as_json, told, f"{address} leads to {target} of {host.name}; Ctrl-C ends it")
            await until_told()
            group.cancel_scope.cancel()
