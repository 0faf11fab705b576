"""`evalfleet retry`."""

from __future__ import annotations

import click

from evalfleet.cli.shared.options import home_option, json_option, run_argument
from evalfleet.cli.shared.output import lasting
from evalfleet.cli.shared.thresholds import Thresholds, threshold_options


@click.command("retry")
@run_argument
@click.option(
    "--only", multiple=True, metavar="STATE|KEY", help="failed, held, cancelled, or a task's key; repeatable."
)
@click.option("-w", "--workers", type=click.IntRange(min=1), help="Tasks at a time from now on.")
@threshold_options
@click.option("-v", "--verbose", is_flag=True, help="Also print claims and progress (plain output only).")
@json_option
@home_option
@lasting
def command(
    run: str,
    only: tuple[str, ...],
    workers: int | None,
    thresholds: Thresholds,
    verbose: bool,
    as_json: bool,
    home: str | None,
) -> int:
    """Give tasks without a verdict a new set of attempts, and drive the run.

    Without --only: all failed and held tasks. Earlier attempts are kept. If another controller drives the run, it is
    asked to do it. Exit codes as `evalfleet run`; of a study as `evalfleet tune`.
    """
    from evalfleet import config
    from evalfleet.cli.shared.document import print_answer
    from evalfleet.cli.shared.drive import Show, drive_and_report
    from evalfleet.engine.controller import reopen
    from evalfleet.errors import Refused
    from evalfleet.operations.home import opened_for_writing
    from evalfleet.operations.runs.steer import retry_and_own
    from evalfleet.report.summary import summarise
    from evalfleet.report.text import count as counted

    settings = config.load(home)
    with opened_for_writing(settings.home, run) as (store, found):
        thresholds.check(found)
        if thresholds.given and store.runs.driver(found.id) is not None:
            raise Refused(
                f"another controller drives run {found.id}, and {thresholds.given} is decided at its end: `evalfleet retry "
                f"{found.id}` asks it, `evalfleet watch {found.id} {thresholds.given} SHARE` waits and decides"
            )
        last = store.events.last(found.id)
        owned, answer = retry_and_own(store, found, only)
        tasks = answer.tasks
        if owned is None or not tasks:
            print_answer(as_json, answer, f"{counted(len(tasks), 'task')} to retry in run {found.id}")
            if owned is not None:
                store.runs.leave(owned)
            return 0 if owned is None else thresholds.code(thresholds.applied(summarise(store, found, results=False)))
        if not as_json:
            click.echo(f"retrying {counted(len(tasks), 'task')} of run {found.id}")
        after = last.number if last else 0
        show = Show(as_json=as_json, verbose=verbose, after=after, thresholds=thresholds)
        return drive_and_report(settings, store, reopen(store, owned, workers=workers), show)
