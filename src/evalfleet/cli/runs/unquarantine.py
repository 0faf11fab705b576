"""`evalfleet unquarantine`."""

from __future__ import annotations

import click

from evalfleet.cli.shared.options import home_option, json_option, run_required


@click.command("unquarantine")
@run_required
@click.argument("worker", metavar="WORKER|HOST")
@click.option("--reason", metavar="TEXT", help="Reason; shown in the events.")
@json_option
@home_option
def command(run: str, worker: str, reason: str | None, as_json: bool, home: str | None) -> int:
    """Let a worker or host in quarantine work again.

    Exit code 3 if it is not in quarantine.
    """
    from evalfleet.cli.shared.steer import changed
    from evalfleet.operations.steer import Quarantine, unquarantine

    def told(answer: Quarantine) -> str:
        return f"in quarantine for run {answer.run}: {', '.join(answer.workers) or 'nothing'}"

    return changed(
        home, run, lambda store, found: unquarantine(store, found, worker, reason=reason), told, as_json=as_json
    )
