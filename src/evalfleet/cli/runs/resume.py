"""`evalfleet resume`."""

from __future__ import annotations

import click

from evalfleet.cli.shared.options import adopt_option, budget_option, home_option, json_option, run_argument
from evalfleet.cli.shared.output import lasting
from evalfleet.cli.shared.thresholds import Thresholds, threshold_options


@click.command("resume")
@run_argument
@click.option("-w", "--workers", type=click.IntRange(min=1), help="Tasks at a time from now on.")
@budget_option
@threshold_options
@click.option("--stay-paused", is_flag=True, hidden=True, help="Stay paused if a pause was requested, as `serve` does.")
@adopt_option
@click.option("-v", "--verbose", is_flag=True, help="Also print claims and progress (plain output only).")
@json_option
@home_option
@lasting
def command(
    run: str,
    workers: int | None,
    budget_usd: float | None,
    thresholds: Thresholds,
    stay_paused: bool,
    adopt: bool,
    verbose: bool,
    as_json: bool,
    home: str | None,
) -> int:
    """Continue a run that was detached, interrupted, killed or paused.

    Tasks that still run are found again and go on; finished tasks do not run again. For a run that is over, only
    the summary is shown. Exit codes as `evalfleet run`; of a study as `evalfleet tune`.
    """
    from evalfleet import config
    from evalfleet.cli.shared.drive import Show, drive_and_report, report
    from evalfleet.cli.shared.home_copies import take_place
    from evalfleet.engine.controller import take
    from evalfleet.errors import RunOver
    from evalfleet.operations.home import opened_for_writing

    settings = config.load(home)
    if adopt:
        take_place(settings.home)
    with opened_for_writing(settings.home, run) as (store, found):
        thresholds.check(found)
        last = store.events.last(found.id)
        after = last.number if last else 0
        show = Show(as_json=as_json, verbose=verbose, after=after, thresholds=thresholds)
        try:
            taken = take(store, found, workers=workers, budget_usd=budget_usd, stays_paused=stay_paused)
        except RunOver:  # a script that resumes until the run is over gets its answer
            return report(settings, store, found, show)
        return drive_and_report(settings, store, taken, show)
