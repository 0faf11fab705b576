"""`evalfleet pool ssh`."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click
from msgspec.structs import asdict

from evalfleet.answers.machines import CommandOnHost
from evalfleet.cli.pools.shared.hosts import one, require_library, say
from evalfleet.cli.pools.shared.pools import home_of
from evalfleet.cli.shared.document import print_document
from evalfleet.cli.shared.options import home_option, json_option

if TYPE_CHECKING:
    from evalfleet.hosts.access import ReachableHost
    from evalfleet.hosts.ssh.login.config import Hop
    from evalfleet.layout import Home

LOST = 255


@click.command("ssh", context_settings={"allow_interspersed_args": False})
@click.argument("worker", metavar="W")
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[CMD…]")
@click.option("-t", "--tty", is_flag=True, help="Give CMD a terminal, for programs such as htop.")
@json_option
@home_option
def command(worker: str, words: tuple[str, ...], tty: bool, as_json: bool, home: str | None) -> int:
    """Open a shell on a host, or run one command there.

    W is the name of a host or of one of its workers. One word of CMD is a line for the shell there; several are passed
    on as they are. Exits as CMD does, and with 255 where the host is not reached.
    """
    from evalfleet.errors import BackendError

    line = line_of(words) if words else None
    if as_json and line is None:
        raise click.UsageError("--json needs a command: a shell to type in has no JSON.")
    try:
        host = one(home, worker)
        place = home_of(home)
        if as_json and line is not None:
            require_library()
            return _collected(host, place, line)
        return _joined(host, place, line, tty=tty)
    except BackendError as error:
        say(str(error))
        return LOST


def line_of(words: tuple[str, ...]) -> str:
    """The command line for the login shell on a host."""
    return words[0] if len(words) == 1 else shlex.join(words)


def _joined(host: ReachableHost, home: Home, line: str | None, *, tty: bool) -> int:
    """Use the system's ssh, whose terminal people know; where there is none, our own client."""
    import anyio

    from evalfleet.hosts.access import name_in_errors
    from evalfleet.hosts.ssh.login.config import route
    from evalfleet.hosts.ssh.visit import client

    program = client.program()
    if program is None or host.trust_first_use:
        require_library()
    if program is None:
        return anyio.run(_by_ourselves, host, home, line, tty)
    with name_in_errors(host.name):
        hops = anyio.run(route, host.spec)
    if host.trust_first_use:
        _learn(host, hops, home)
    status, said = client.run(program, host, hops, home, line, terminal=tty)
    if status != LOST or not said:
        return status
    if said == client.UNVERIFIED or len(hops) > 1:
        require_library()
        anyio.run(_knock, host, home)  # says which key it is and what to do, or where on the way it broke
    say(f"host {host.name}: {said.removeprefix('ssh: ')}")
    return LOST


def _learn(host: ReachableHost, hops: Sequence[Hop], home: Home) -> None:
    """Learn the key of an unknown host, by our rule, which is stricter than ssh's."""
    import anyio

    from evalfleet.hosts.ssh.visit.connection import is_known

    if not is_known(host, hops, home):
        anyio.run(_knock, host, home)


async def _knock(host: ReachableHost, home: Home) -> None:
    """Raises BackendError."""
    from evalfleet.hosts.ssh.visit.connection import visit_connection

    async with visit_connection(host, home, say):
        pass


async def _by_ourselves(host: ReachableHost, home: Home, line: str | None, tty: bool) -> int:
    from evalfleet import config
    from evalfleet.hosts.access import name_in_errors
    from evalfleet.hosts.ssh.visit.connection import visit_connection
    from evalfleet.hosts.ssh.visit.terminal import run_in_terminal

    terminal = config.environment().get("TERM", "vt100") if line is None or tty else None
    async with visit_connection(host, home, say) as connection:
        with name_in_errors(host.name):
            return await run_in_terminal(connection, line, terminal=terminal)


def _collected(host: ReachableHost, home: Home, line: str) -> int:
    import anyio

    from evalfleet.cli.pools.shared.run_on_all import Everywhere

    (row,) = anyio.run(Everywhere([host], home, line, None).run, False)
    print_document(CommandOnHost(host=row.host, **asdict(row.told())))
    return LOST if row.ended.exit is None else row.ended.exit
