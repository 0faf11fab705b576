"""`evalfleet release`."""

from __future__ import annotations

import click

from evalfleet.cli.shared.options import home_option, json_option, keys_argument, run_required


@click.command("release")
@run_required
@keys_argument
@json_option
@home_option
def command(run: str, keys: tuple[str, ...], as_json: bool, home: str | None) -> int:
    """Let held tasks start again.

    `evalfleet resume` drives them, where no controller does.
    """
    from evalfleet.cli.shared.steer import changed_tasks
    from evalfleet.operations.steer import release

    return changed_tasks(
        home,
        run,
        lambda store, found: release(store, found, keys),
        keys,
        "released",
        as_json=as_json,
        hint="`evalfleet resume {run}` drives the run",
    )
