"""`evalfleet study resume`."""

from __future__ import annotations

import click

from evalfleet.cli.shared.options import home_option, json_option
from evalfleet.cli.shared.output import lasting
from evalfleet.cli.studies.shared.names import study_argument, written_study


@click.command("resume")
@study_argument
@click.option("--parallel", type=click.IntRange(1, 10_000), help="Trials at a time from now on.")
@click.option("-v", "--verbose", is_flag=True, help="Also print claims and progress (plain output only).")
@json_option
@home_option
@lasting
def command(study: str, parallel: int | None, verbose: bool, as_json: bool, home: str | None) -> int:
    """Continue a study that was detached, interrupted, killed or paused.

    Trials that are still running are found again; none is lost, none is proposed twice. Where a controller drives the study
    already, this command tells it (--parallel takes effect at once) and ends. Exit codes as `evalfleet tune`.
    """
    from evalfleet.cli.studies.shared.drive import drive_study
    from evalfleet.cli.studies.shared.steer import resume_driven

    with written_study(home, study) as (settings, store, run):
        if store.runs.driver(run.id) is not None:
            return resume_driven(store, run, parallel, as_json=as_json)
        return drive_study(settings, store, run, as_json=as_json, verbose=verbose, parallel=parallel)
