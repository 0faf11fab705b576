"""`evalfleet study pause`, `resume`, `add-trials` and `retry-failed`.

The controller of the study makes the change, or this command where none drives it.
"""

from __future__ import annotations

import click

from evalfleet.cli.shared.document import print_answer
from evalfleet.cli.shared.options import home_option, json_option
from evalfleet.cli.shared.output import lasting
from evalfleet.cli.studies.shared.names import study_argument, written_study
from evalfleet.model import Run
from evalfleet.operations.runs import steer, studies
from evalfleet.operations.runs.steer import Changed
from evalfleet.store.store import Store


@click.command("pause")
@study_argument
@json_option
@home_option
def pause(study: str, as_json: bool, home: str | None) -> int:
    """Start no more trials; running ones finish. `evalfleet study resume` continues it."""
    with written_study(home, study) as (_, store, run):
        answer = steer.pause(store, run)
    print_answer(as_json, answer, "paused; trials that run go on to their end")
    return 0


@click.command("resume")
@study_argument
@click.option("--parallel", type=click.IntRange(1, 10_000), help="Trials at a time from now on.")
@click.option("-v", "--verbose", is_flag=True, help="Also print claims and progress (plain output only).")
@json_option
@home_option
@lasting
def resume(study: str, parallel: int | None, verbose: bool, as_json: bool, home: str | None) -> int:
    """Continue a study that was detached, interrupted, killed or paused.

    Trials that are still running are found again; none is lost, none is proposed twice. Where a controller drives the study
    already, this command tells it (--parallel takes effect at once) and ends. Exit codes as `evalfleet tune`.
    """
    from evalfleet.cli.studies.shared.drive import drive_study

    with written_study(home, study) as (settings, store, run):
        if store.runs.driver(run.id) is not None:
            return _resume_driven(store, run, parallel, as_json=as_json)
        return drive_study(settings, store, run, as_json=as_json, verbose=verbose, parallel=parallel)


@click.command("add-trials")
@click.argument("study", metavar="STUDY")
@click.argument("count", type=click.IntRange(1, 100_000), metavar="N")
@json_option
@home_option
def add_trials(study: str, count: int, as_json: bool, home: str | None) -> int:
    """Add N trials to a study, also to one that is over. It continues from its results so far."""
    with written_study(home, study) as (_, store, run):
        answer = studies.add_trials(store, run, count)
    _say(as_json, answer, f"{answer.trials} trials in all")
    return 0


@click.command("retry-failed")
@study_argument
@json_option
@home_option
def retry_failed(study: str, as_json: bool, home: str | None) -> int:
    """Give failed and held trials new attempts, with the same parameters."""
    with written_study(home, study) as (_, store, run):
        answer = studies.retry_failed(store, run)
    _say(as_json, answer, f"tried again: {', '.join(answer.tasks) or 'nothing'}")
    return 0


def _say(as_json: bool, answer: Changed, text: str) -> None:
    """Print the change, and how to drive a study that no controller drives."""
    print_answer(as_json, answer, text if answer.driven else f"{text}; `evalfleet resume {answer.run}` drives it")


def _resume_driven(store: Store, run: Run, parallel: int | None, *, as_json: bool) -> int:
    """Ask the controller of a study to continue, with this many trials at a time."""
    from evalfleet.report.text import count

    answer = steer.resume(store, run, workers=parallel)
    if answer.driven:
        text = f"a controller drives it, and continues: {count(answer.workers, 'trial')} at a time"
    else:  # its controller has exited meanwhile
        text = f"no controller drives it any more; `evalfleet study resume {run.id}` does"
    print_answer(as_json, answer, text)
    return 0
