"""`evalfleet pool vnc`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from evalfleet.cli.pools.shared.hosts import everything, one, require_library, say, until_told
from evalfleet.cli.pools.shared.pools import home_of
from evalfleet.cli.shared.options import home_option, json_option

if TYPE_CHECKING:
    from anyio.abc import TaskGroup, TaskStatus

    from evalfleet.hosts.access import ReachableHost, UnavailableHost
    from evalfleet.hosts.ssh.visit.tunnel import Tunnel
    from evalfleet.layout import Home

LOST = 3


@click.command("vnc")
@click.argument("worker", metavar="[W]", required=False)
@click.option("--all", "everywhere", is_flag=True, help="Show all hosts of all pools.")
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    metavar="N",
    help="Port of the screen on the host.  [default: the benchmark's, such as 8006 for waa]",
)
@click.option("--open", "in_browser", is_flag=True, help="Open the links in a browser.")
@json_option
@home_option
def command(
    worker: str | None, everywhere: bool, port: int | None, in_browser: bool, as_json: bool, home: str | None
) -> int:
    """Show the screens of hosts in a browser until Ctrl-C.

    Prints a link for each. They work on this machine only, and lead through SSH to the port on which the host's
    container shows its screen. W may be left out when there is one host.
    """
    import anyio

    if everywhere and worker is not None:
        raise click.UsageError("name a host, or --all; not both.")
    hosts: list[ReachableHost | UnavailableHost] = everything(home) if everywhere else [one(home, worker)]
    require_library()
    return anyio.run(_serve, hosts, home_of(home), port or _benchmark_port(home), in_browser, as_json)


def _benchmark_port(home: str | None) -> int:
    from evalfleet import config
    from evalfleet.benchmarks.screens import first_screen

    screen = first_screen(config.load(home))
    if screen is None:
        raise click.UsageError("no benchmark says where hosts show their screen; name it with --port.")
    return screen.port


async def _serve(
    hosts: list[ReachableHost | UnavailableHost], home: Home, port: int, in_browser: bool, as_json: bool
) -> int:
    import anyio

    from evalfleet.hosts.base import single_error

    links: dict[str, str] = {}
    with single_error():
        async with anyio.create_task_group() as group:
            async with anyio.create_task_group() as first:
                for host in hosts:
                    first.start_soon(_open, group, host, home, port, links)
            if not links:
                return LOST
            for host in hosts:
                if host.name in links:
                    _show(host.name, links[host.name], in_browser, as_json)
            click.echo("evalfleet: Ctrl-C ends it", err=True)
            await until_told()
            group.cancel_scope.cancel()
    return 0


def _show(name: str, link: str, in_browser: bool, as_json: bool) -> None:
    click.echo(json.dumps({"host": name, "link": link}) if as_json else f"{name}  {link}")
    if in_browser:
        import webbrowser

        if not webbrowser.open(link):
            say(f"no browser was found here; open {link} yourself")


async def _open(
    group: TaskGroup, host: ReachableHost | UnavailableHost, home: Home, port: int, links: dict[str, str]
) -> None:
    """Keep a tunnel in the group. A host that is unreachable or shows no screen is reported and left out."""
    from evalfleet.errors import BackendError
    from evalfleet.hosts.access import present
    from evalfleet.hosts.ssh.visit.connection import visit_connection
    from evalfleet.hosts.ssh.visit.screen import listens
    from evalfleet.hosts.ssh.visit.tunnel import LOCAL, Tunnel, TunnelTarget

    try:
        async with visit_connection(present(host), home, say) as connection:
            if not await listens(connection, port):
                say(f"host {host.name} has no screen: nothing listens on its port {port}")
                return
        tunnel = Tunnel(present(host), home, TunnelTarget(port=port), say)
        local: int = await group.start(_kept, tunnel)
    except BackendError as error:
        say(str(error))
    else:
        links[host.name] = f"http://{LOCAL}:{local}/"


async def _kept(tunnel: Tunnel, *, task_status: TaskStatus[int]) -> None:
    """Serve a tunnel; its end must not end the others."""
    import anyio

    from evalfleet.errors import BackendError
    from evalfleet.hosts.base import single_error

    is_open = False
    try:
        with single_error():
            async with anyio.create_task_group() as group:
                local: int = await group.start(tunnel.serve, 0)
                is_open = True
                task_status.started(local)
    except BackendError as error:
        if not is_open:
            raise
        say(str(error))
