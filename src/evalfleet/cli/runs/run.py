"""`evalfleet run`."""

from __future__ import annotations

from contextlib import closing, nullcontext
from typing import TYPE_CHECKING, Any

import click

from evalfleet import config
from evalfleet.cli.runs.shared.own_machines import Machines, machine_options, submit_as_planned, submit_on_own
from evalfleet.cli.runs.shared.run_overrides import Overrides, override_options
from evalfleet.cli.runs.shared.source import benchmark_options, submission_of, variable_options
from evalfleet.cli.shared.document import print_document
from evalfleet.cli.shared.options import (
    budget_option,
    home_option,
    json_option,
    priority_option,
    project_option,
    tag_option,
)
from evalfleet.cli.shared.output import lasting
from evalfleet.cli.shared.thresholds import Thresholds, threshold_options
from evalfleet.report.text import count, printable

if TYPE_CHECKING:
    from evalfleet.model import Run
    from evalfleet.operations.runs.submit import Submitted


@click.command("run")
@click.argument("source", metavar="TASKS|BENCHMARK")
@click.option("-w", "--workers", type=click.IntRange(min=1), help="Tasks at a time.  [default: the file's, else CPUs]")
@click.option(
    "--distribution",
    type=click.Choice(["queue", "round-robin"]),
    help="How tasks are assigned to workers.  [default: queue]",
)
@click.option("--pool", metavar="NAME", help="Use the hosts of this pool.  [default: this machine]")
@machine_options
@click.option(
    "--plan",
    is_flag=False,
    flag_value="newest",
    metavar="[PLAN]",
    help="Take the machines of a plan of `evalfleet plan`.  [default: the newest plan of the same tasks]",
)
@click.option("--name", help="Name of the run.  [default: the file's name]")
@project_option
@tag_option("Tag of the run, such as model=small")
@budget_option
@priority_option
@override_options
@threshold_options
@benchmark_options
@variable_options
@click.option("--detach", is_flag=True, help="Submit only; `evalfleet resume` drives it.")
@click.option("--serve", is_flag=True, help="Also serve the dashboard while it runs.")
@click.option("-v", "--verbose", is_flag=True, help="Also print claims and progress (plain output only).")
@json_option
@home_option
@lasting
def command(
    source: str,
    pool: str | None,
    machines: Machines,
    plan: str | None,
    overrides: Overrides,
    thresholds: Thresholds,
    chosen: dict[str, Any],
    variables: dict[str, Any],
    detach: bool,
    serve: bool,
    verbose: bool,
    as_json: bool,
    home: str | None,
    **wanted: Any,  # workers, distribution, name, budget, project and tags, as `RunOptions` has them
) -> int:
    """Submit the tasks of a file or a benchmark, and drive them to the end.

    TASKS is a task file: TOML, or JSON Lines with one task per line; '-' reads standard input. BENCHMARK is one that
    `evalfleet benchmarks` lists; a file of that name takes precedence. A terminal shows the run live; elsewhere a line is
    printed per event; with --json only one summary object, at the end.

    Exit codes: 0 enough tasks count; 1 too few do, the valid score is below --min-score, or cancelled; 2 bad usage or
    input; 3 paused; 130 interrupted, resumable.
    """
    from evalfleet.cli.runs.shared.serve_beside import page_beside
    from evalfleet.cli.shared.drive import Show, drive_and_report
    from evalfleet.engine.controller import take
    from evalfleet.operations.runs.ownership import ownership
    from evalfleet.operations.runs.submit import RunOptions, require_secrets, submit
    from evalfleet.store.home.place import url_of
    from evalfleet.store.open import open_store

    if detach and thresholds.given:
        raise click.UsageError(
            f"{thresholds.given} is decided at the end: give it to `resume` or `watch`, not --detach."
        )
    settings = config.load(home)
    machines.check(pool)
    remote = (pool or machines.backend or plan) is not None
    found = submission_of(source, chosen, settings, overrides.timeout_s, variables=variables, remote=remote)
    submission = overrides.applied(found)
    elsewhere = detach and url_of(settings.home) is not None
    if not elsewhere:
        require_secrets(settings, submission, ownership(settings, wanted["project"], {}))  # before a home is made
    with closing(open_store(settings.home)) as store:
        if plan is not None:
            run, answer = submit_as_planned(settings, store, source, submission, machines, plan, pool=pool, **wanted)
        elif machines.backend:
            run, answer = submit_on_own(settings, store, submission, machines, **wanted)
        else:
            options = RunOptions(pool=pool, **wanted)
            run, answer = submit(settings, store, submission, options, elsewhere=elsewhere)
        if answer.warning is not None:
            click.echo(f"evalfleet: warning: {answer.warning}", err=True)
        _tell(run, answer, detach=detach, as_json=as_json)
        if detach:
            return 0
        show = Show(as_json=as_json, verbose=verbose, thresholds=thresholds)
        with page_beside(settings) if serve else nullcontext():
            return drive_and_report(settings, store, take(store, run), show)


def _tell(run: Run, answer: Submitted, *, detach: bool, as_json: bool) -> None:
    """What was submitted; of a run that is driven here a program gets the summary alone."""
    name, tasks = printable(run.name), count(answer.tasks, "task")
    if detach and as_json:
        print_document(answer)
    elif detach:
        click.echo(f"{run.id}\nsubmitted {tasks} as {name}; `evalfleet resume {run.id}` drives the run")
    elif not as_json:
        click.echo(f"run {run.id} ({name}): {tasks} on {count(run.policy.workers, 'worker')}")
