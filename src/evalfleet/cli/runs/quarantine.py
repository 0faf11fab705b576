"""`evalfleet quarantine`."""

from __future__ import annotations

import click

from evalfleet.cli.shared.options import home_option, json_option, run_required


@click.command("quarantine")
@run_required
@click.argument("worker", metavar="WORKER|HOST")
@click.option("--reason", metavar="TEXT", help="Reason; shown in the events.")
@json_option
@home_option
def command(run: str, worker: str, reason: str | None, as_json: bool, home: str | None) -> int:
    """Stop giving work of this run to a worker, or to all workers of a host.

    Tasks that run there go on to their end. `evalfleet unquarantine` lets it work again. `evalfleet status RUN` names the workers.
    """
    from evalfleet.cli.shared.steer import changed
    from evalfleet.operations.steer import Quarantine, quarantine

    def told(answer: Quarantine) -> str:
        return f"in quarantine for run {answer.run}: {', '.join(answer.workers) or 'nothing'}"

    return changed(
        home, run, lambda store, found: quarantine(store, found, worker, reason=reason), told, as_json=as_json
    )
