"""`evalfleet emulator`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from evalfleet.answers.home import EmulatorSettings
from evalfleet.cli.shared.document import print_document
from evalfleet.cli.shared.options import home_option, json_option
from evalfleet.errors import InputError

if TYPE_CHECKING:
    from evalfleet.emulator.server import Options


@click.command("emulator")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Port on 127.0.0.1.  [default: a free port]")
@click.option(
    "--speed",
    type=click.FloatRange(0, 1e6),
    default=100.0,
    show_default=True,
    help="How many times faster than real time; 0: no waiting.",
)
@click.option("--scenario", type=click.Path(path_type=Path), metavar="FILE", help="File with quotas, times and faults.")
@click.option("--seed", type=int, help="Seed for everything random.  [default: the scenario's, else 0]")
@click.option(
    "--traffic", type=click.Path(path_type=Path), metavar="FILE", help="Log every request and response as JSON lines."
)
@click.option("--tls", is_flag=True, help="Serve HTTPS and make clients sign in, as on Azure.")
@json_option
@home_option
def command(
    port: int,
    speed: float,
    scenario: Path | None,
    seed: int | None,
    traffic: Path | None,
    tls: bool,
    as_json: bool,
    home: str | None,
) -> None:
    """Emulate Azure on this machine until Ctrl-C.

    Prints the settings to export, one per line. VMs answer SSH on loopback addresses; commands on them run as you.
    """
    import anyio

    try:
        from evalfleet.emulator import scenario as scenarios
        from evalfleet.emulator.server import Options
    except ImportError:
        raise InputError(
            "the emulator needs more packages; install them with: pip install 'evalfleet[emulator]'"
        ) from None

    chosen = scenarios.load(scenario) if scenario else scenarios.Scenario()
    options = Options(port=port, speed=speed, scenario=chosen, seed=seed, traffic=traffic, tls=tls)
    anyio.run(_run, options, as_json)


async def _run(options: Options, as_json: bool) -> None:
    import asyncio

    from evalfleet.emulator import server

    stop = asyncio.Event()
    async with server.running(options) as emulator:
        settings = emulator.settings()
        if as_json:
            print_document(EmulatorSettings(variables=settings))
        else:
            for name, value in settings.items():
                click.echo(f"export {name}={value}")
        click.echo(
            f"emulator: Azure is at {emulator.url}; export the lines above in another shell. Ctrl-C ends it.", err=True
        )
        await server.until_told(stop)
