"""`evalfleet pause`."""

from __future__ import annotations

import click

from evalfleet.cli.shared.options import home_option, json_option, run_argument


@click.command("pause")
@run_argument
@click.option("--reason", metavar="TEXT", help="Reason; shown in `status` and the dashboard.")
@json_option
@home_option
def command(run: str, reason: str | None, as_json: bool, home: str | None) -> int:
    """Start no more tasks of a run. Tasks that run go on to their end; then the run is paused.

    `evalfleet resume` continues it. Exit code 3 if the run is over or paused already.
    """
    from evalfleet.cli.shared.steer import changed
    from evalfleet.operations.steer import Pausing, pause
    from evalfleet.report.text import count

    def told(answer: Pausing) -> str:
        if answer.pausing:
            return f"run {answer.run} starts no more tasks, and is paused when {count(answer.pausing, 'attempt')} ended"
        return f"run {answer.run} is paused; `evalfleet resume {answer.run}` continues it"

    return changed(home, run, lambda store, found: pause(store, found, reason=reason), told, as_json=as_json)
