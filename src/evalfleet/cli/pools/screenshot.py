"""`evalfleet pool screenshot`."""

from __future__ import annotations

import base64
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from evalfleet.answers.machines import Screenshot
from evalfleet.cli.pools.shared.hosts import one, require_library, say
from evalfleet.cli.pools.shared.pools import home_of
from evalfleet.cli.shared.document import print_answer
from evalfleet.cli.shared.options import home_option, json_option

if TYPE_CHECKING:
    from evalfleet.hosts.access import ReachableHost
    from evalfleet.layout import Home
    from evalfleet.model import JsonObject


@click.command("screenshot")
@click.argument("worker", metavar="W")
@click.option("--to", metavar="FILE", help='Output file; "-" is standard output.  [default: W.png]')
@click.option("--container", metavar="C", help="Container, if a host has several.  [default: the first that runs]")
@json_option
@home_option
def command(worker: str, to: str | None, container: str | None, as_json: bool, home: str | None) -> None:
    """Save what a host's screen shows now, as PNG.

    If the benchmark runs in a container with a screen, such as waa, it is that screen; otherwise it is the
    newest screenshot of an attempt running there.
    """
    import anyio

    from evalfleet import config

    if to == "-" and (as_json or sys.stdout.isatty()):
        raise click.UsageError("a PNG does not go to a terminal, nor into JSON; name a file with --to.")
    host = one(home, worker)
    settings = config.load(home)
    require_library()
    from evalfleet.benchmarks.screens import first_screen, picture_orders

    shown = anyio.run(_asked, host, home_of(home), picture_orders(first_screen(settings), container))
    data = base64.b64decode(shown["png"])
    if to == "-":
        sys.stdout.buffer.write(data)
        return
    path = Path(to or f"{host.name}.png")
    path.write_bytes(data)
    seen = "now" if shown["age_s"] < 1 else f"{shown['age_s']:.0f} s old"
    told = Screenshot(host=host.name, file=str(path), of=shown["of"], age_s=shown["age_s"])
    print_answer(as_json, told, f"{path}: {shown['of']}, {seen}")


async def _asked(host: ReachableHost, home: Home, orders: JsonObject) -> JsonObject:
    from evalfleet.errors import Refused
    from evalfleet.hosts.ssh.visit.connection import show_logs

    async with show_logs(host, home, say, orders) as lines:
        async for line in lines:
            if "png" in line:
                return line
            raise Refused(f"host {host.name} has no screen to show: {'; '.join(line['none'])}")
    raise Refused(f"host {host.name} has no screen to show.")
