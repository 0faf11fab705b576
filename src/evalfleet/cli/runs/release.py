"""`evalfleet release`."""

from __future__ import annotations

import click

from evalfleet.cli.shared.options import home_option, json_option, run_required


@click.command("release")
@run_required
@click.argument("keys", nargs=-1, required=True, metavar="KEY…")
@json_option
@home_option
def command(run: str, keys: tuple[str, ...], as_json: bool, home: str | None) -> int:
    """Let held tasks start again.

    `evalfleet resume` drives them, where no controller does.
    """
    from evalfleet.cli.shared.steer import steer_tasks
    from evalfleet.model import Verb

    return steer_tasks(home, run, Verb.RELEASE, keys, "released", as_json=as_json)
