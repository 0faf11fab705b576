"""`evalfleet hold`."""

from __future__ import annotations

import click

from evalfleet.cli.shared.options import home_option, json_option, run_required


@click.command("hold")
@run_required
@click.argument("keys", nargs=-1, required=True, metavar="KEY…")
@json_option
@home_option
def command(run: str, keys: tuple[str, ...], as_json: bool, home: str | None) -> int:
    """Keep tasks from starting.

    A waiting task is held at once; a running one when its attempt is over, unless that brings a verdict. `evalfleet
    release` lets them go.
    """
    from evalfleet.cli.shared.steer import steer_tasks
    from evalfleet.model import Verb

    return steer_tasks(home, run, Verb.HOLD, keys, "held", as_json=as_json)
