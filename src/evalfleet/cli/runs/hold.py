"""`evalfleet hold`."""

from __future__ import annotations

import click

from evalfleet.cli.shared.options import home_option, json_option, keys_argument, run_required


@click.command("hold")
@run_required
@keys_argument
@click.option("--reason", metavar="TEXT", help="Reason; shown in `status` and the report.")
@json_option
@home_option
def command(run: str, keys: tuple[str, ...], reason: str | None, as_json: bool, home: str | None) -> int:
    """Keep tasks from starting.

    A waiting task is held at once; a running one when its attempt is over, unless that brings a verdict. `evalfleet
    release` lets them start again.
    """
    from evalfleet.cli.shared.steer import changed_tasks
    from evalfleet.operations.steer import hold

    return changed_tasks(
        home, run, lambda store, found: hold(store, found, keys, reason=reason), keys, "held", as_json=as_json
    )
