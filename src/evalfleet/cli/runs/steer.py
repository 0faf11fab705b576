"""`evalfleet pause`, `amend`, `cancel`, `hold`, `release`, `quarantine` and `unquarantine`: changes to a run."""

from __future__ import annotations

import click

from evalfleet import config
from evalfleet.cli.runs.shared.steer import changed, changed_tasks
from evalfleet.cli.shared.document import print_answer
from evalfleet.cli.shared.options import (
    budget_option,
    home_option,
    json_option,
    keys_argument,
    priority_option,
    run_argument,
    run_required,
    runs_of,
    server_option,
)
from evalfleet.model import RunState
from evalfleet.operations.runs import steer
from evalfleet.report.text import count, money

_worker_argument = click.argument("worker", metavar="WORKER|HOST")
_event_reason = click.option("--reason", metavar="TEXT", help="Reason; shown in the events.")


@click.command("pause")
@run_argument
@click.option("--reason", metavar="TEXT", help="Reason; shown in `status` and the dashboard.")
@server_option
@json_option
@home_option
def pause(run: str, reason: str | None, server: str | None, as_json: bool, home: str | None) -> int:
    """Start no more tasks of a run. Tasks that run go on to their end; then the run is paused.

    `evalfleet resume` continues it. Exit code 3 if the run is over or paused already.
    """

    answer = runs_of(config.load(home), server).pause(run, reason)
    told = f"run {answer.run} is paused; `evalfleet resume {answer.run}` continues it"
    if answer.pausing:
        told = f"run {answer.run} starts no more tasks, and is paused when {count(answer.pausing, 'attempt')} ended"
    print_answer(as_json, answer, told)
    return 0


@click.command("amend")
@run_argument
@click.option("-w", "--workers", type=click.IntRange(min=1), help="Tasks at a time from now on.")
@budget_option
@priority_option
@json_option
@home_option
def amend(
    run: str,
    workers: int | None,
    budget_usd: float | None,
    priority: int | None,
    as_json: bool,
    home: str | None,
) -> int:
    """Change the number of workers, the budget or the priority of a run, also while it runs.

    With fewer workers, tasks that run go on to their end. Of a study, --workers is the number of trials at a time.
    """
    if workers is None and budget_usd is None and priority is None:
        raise click.UsageError("Give --workers, --budget or --priority.")

    def told(answer: steer.Amended) -> str:
        budget = "no budget" if answer.budget_usd is None else f"a budget of {money(answer.budget_usd)}"
        return f"run {answer.run} has {count(answer.workers, 'worker')}, {budget} and priority {answer.priority}"

    return changed(
        home,
        run,
        lambda store, found: steer.amend(store, found, workers=workers, budget_usd=budget_usd, priority=priority),
        told,
        as_json=as_json,
    )


@click.command("cancel")
@run_argument
@server_option
@json_option
@home_option
def cancel(run: str, server: str | None, as_json: bool, home: str | None) -> int:
    """End a run: waiting and held tasks are cancelled, running ones are ended.

    Existing verdicts and failures stay. `evalfleet retry --only cancelled` undoes it.
    """
    answer = runs_of(config.load(home), server).cancel(run)
    words = "cancelled" if answer.state is RunState.CANCELLED else "being cancelled"
    print_answer(as_json, answer, f"run {answer.run} is {words}")
    return 0


@click.command("hold")
@run_required
@keys_argument
@click.option("--reason", metavar="TEXT", help="Reason; shown in `status` and the report.")
@json_option
@home_option
def hold(run: str, keys: tuple[str, ...], reason: str | None, as_json: bool, home: str | None) -> int:
    """Keep tasks from starting.

    A waiting task is held at once; a running one when its attempt is over, unless that brings a verdict. `evalfleet
    release` lets them start again.
    """
    return changed_tasks(
        home, run, lambda store, found: steer.hold(store, found, keys, reason=reason), keys, "held", as_json=as_json
    )


@click.command("release")
@run_required
@keys_argument
@json_option
@home_option
def release(run: str, keys: tuple[str, ...], as_json: bool, home: str | None) -> int:
    """Let held tasks start again.

    `evalfleet resume` drives them, where no controller does.
    """
    hint = "`evalfleet resume {run}` drives the run"
    return changed_tasks(
        home, run, lambda store, found: steer.release(store, found, keys), keys, "released", as_json=as_json, hint=hint
    )


@click.command("quarantine")
@run_required
@_worker_argument
@_event_reason
@json_option
@home_option
def quarantine(run: str, worker: str, reason: str | None, as_json: bool, home: str | None) -> int:
    """Stop giving work of this run to a worker, or to all workers of a host.

    Tasks that run there go on to their end. `evalfleet unquarantine` lets it work again. `evalfleet status RUN` names the workers.
    """
    return changed(
        home, run, lambda store, found: steer.quarantine(store, found, worker, reason=reason), _barred, as_json=as_json
    )


@click.command("unquarantine")
@run_required
@_worker_argument
@_event_reason
@json_option
@home_option
def unquarantine(run: str, worker: str, reason: str | None, as_json: bool, home: str | None) -> int:
    """Let a worker or host in quarantine work again.

    Exit code 3 if it is not in quarantine.
    """
    return changed(
        home,
        run,
        lambda store, found: steer.unquarantine(store, found, worker, reason=reason),
        _barred,
        as_json=as_json,
    )


def _barred(answer: steer.Quarantine) -> str:
    return f"in quarantine for run {answer.run}: {', '.join(answer.workers) or 'nothing'}"
