"""`evalfleet controller`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from evalfleet.answers.home import StartedController
from evalfleet.cli.shared.document import print_document
from evalfleet.cli.shared.options import home_option, json_option

if TYPE_CHECKING:
    from evalfleet.config import Settings

INTERRUPTED = 130


@click.command("controller")
@click.option("--runs", type=click.IntRange(min=1), default=4, show_default=True, help="Runs to drive at a time.")
@json_option
@home_option
def command(runs: int, as_json: bool, home: str | None) -> int:
    """Take queued runs of the store and drive them until Ctrl-C, without a page.

    Several controllers, also on several machines, share the runs of one PostgreSQL store: each run is driven by one of them, and a
    controller that dies is replaced by another. A new folder joins the home of the store. Ctrl-C leaves running tasks running.
    """
    import anyio

    from evalfleet import config
    from evalfleet.operations.controllers import join_if_new

    settings = config.load(home)
    joined = join_if_new(settings)
    if joined is not None:
        click.echo(f"evalfleet: {settings.home} joined the home {joined.home}", err=True)
    anyio.run(_drive, settings, runs, as_json)
    return INTERRUPTED


async def _drive(settings: Settings, runs: int, as_json: bool) -> None:
    import logging
    import signal

    import anyio

    from evalfleet.daemon.run_driver import driving

    logging.basicConfig(level=settings.log_level.upper(), stream=sys.stderr, format="evalfleet: %(message)s")

    def notice(text: str) -> None:
        click.echo(f"evalfleet: {text}", err=True)

    async with driving(settings, runs=runs, notice=notice) as driver:
        if as_json:
            print_document(StartedController(controller=driver.registration.id))
            sys.stdout.flush()
        notice(f"controller {driver.registration.id} takes up to {runs} runs at a time")
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as received:
            await anext(received)
        notice("stopping; running tasks go on, and other controllers take the runs")
