"""`evalfleet plan`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from evalfleet.cli.runs.shared.source import benchmark_options, own_options, submission_of
from evalfleet.cli.shared.cloud_options import cloud_option
from evalfleet.cli.shared.document import print_document
from evalfleet.cli.shared.options import home_option, json_option

if TYPE_CHECKING:
    from evalfleet.config import Settings
    from evalfleet.operations.plans.jobs import Planned


def _seconds(_ctx: click.Context, _param: click.Parameter, value: str | None) -> float | None:
    from evalfleet import duration

    try:
        return None if value is None else duration.parse(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _memory(_ctx: click.Context, _param: click.Parameter, values: tuple[str, ...]) -> dict[str, int]:
    found: dict[str, int] = {}
    for value in values:
        domain, equals, text = value.rpartition("=")
        if not equals or not text.replace(".", "", 1).isdigit():
            raise click.BadParameter(f"{value!r}: write DOMAIN=GB, such as libreoffice_calc=32")
        found[domain] = int(float(text) * 1024)
    return found


_dollars = click.FloatRange(0, 1e6, min_open=True)


@click.command("plan")
@click.argument("source", metavar="[TASKS|BENCHMARK]", required=False)
@click.option("--deadline", "deadline_s", metavar="TIME", callback=_seconds, help="The run shall end in this time: 1h.")
@click.option("--budget", "budget_usd", type=_dollars, metavar="USD", help="The run shall cost at most this.")
@click.option("-w", "--workers", type=click.IntRange(1, 10_000), help="Plan for this many workers only.")
@click.option("--size", metavar="SIZES", help="Only these sizes, comma-separated.")
@click.option("--regions", metavar="REGIONS", help="Only these regions, comma-separated.")
@click.option("--spot/--no-spot", default=None, help="Only spot machines, or none.  [default: compare both]")
@click.option("--minutes-per-task", type=_dollars, help="Assume this mean instead of the history.")
@click.option("--start-minutes", type=click.FloatRange(0, 1e6), help="Assume that a machine takes this long to start.")
@click.option("--memory", multiple=True, metavar="DOMAIN=GB", callback=_memory, help="What a domain needs; repeatable.")
@click.option("--image", is_flag=True, help="Count a golden image in each region.")
@click.option("--price", type=click.FloatRange(0, 1e6), metavar="USD", help="Dollars per machine and hour.")
@cloud_option
@click.option("--show", metavar="PLAN", help="Show a plan that was made before, with what became of its run.")
@click.option("--list", "listed", is_flag=True, help="List the plans that were made.")
@benchmark_options
@json_option
@home_option
def command(
    source: str | None,
    show: str | None,
    listed: bool,
    chosen: dict[str, Any],
    as_json: bool,
    home: str | None,
    size: str | None,
    regions: str | None,
    **wanted: Any,  # as `PlanRequest` has them
) -> int:
    """Plan a run on rented machines: how many, of which size, in how much time and for how much money.

    A plan is made from the history of earlier runs and the price list, and stored; `run --plan` takes it. Intervals hold
    90 % of simulated runs; a deadline or budget is kept by their upper ends. Without a source, --tasks says how many tasks
    there are.
    """
    from evalfleet import config
    from evalfleet.operations.plans import make
    from evalfleet.store.open import open_store

    settings = config.load(home)
    if show is not None or listed:
        return _look(settings, show, as_json=as_json)
    planned = _planned(source, chosen, settings)
    asked = make.PlanRequest(**wanted, size=_names(size), regions=_names(regions))
    store = open_store(settings.home)
    try:
        plan = make.make(settings, store, planned, asked)
    finally:
        store.close()
    _print(plan, as_json=as_json)
    return 0


def _print(plan: Any, *, as_json: bool) -> None:
    if as_json:
        print_document(plan)
        return
    from evalfleet.report.terminal.plan import plan_lines

    for line in plan_lines(plan):
        click.echo(line)


def _look(settings: Settings, show: str | None, *, as_json: bool) -> int:
    from evalfleet.answers.plans import Plans
    from evalfleet.operations.plans import make
    from evalfleet.report.terminal.plan import list_lines
    from evalfleet.store.open import open_reader

    store = open_reader(settings.home)
    try:
        if show is not None:
            if store is None:
                raise click.UsageError(f"--show {show}: this home has no plans yet.")
            _print(make.show(store, show), as_json=as_json)
            return 0
        found = Plans(plans=[] if store is None else make.newest(store))
    finally:
        if store is not None:
            store.close()
    if as_json:
        print_document(found)
    else:
        for line in list_lines(found.plans):
            click.echo(line)
    return 0


def _names(text: str | None) -> tuple[str, ...]:
    return tuple(part.strip() for part in (text or "").split(",") if part.strip())


def _planned(source: str | None, chosen: dict[str, Any], settings: Settings) -> Planned:
    from evalfleet.operations.plans import jobs

    if source is None:
        number = chosen.get("tasks")
        if number is None or len(chosen) > 1:
            raise click.UsageError("name a task file or a benchmark, or give --tasks alone.")
        return jobs.unnamed(number)
    wrong = next((name for name in chosen if name not in (*jobs.SELECTS, "tasks_file")), None)
    if wrong is not None:
        raise click.UsageError(f"--{wrong.replace('_', '-')} changes nothing in a plan.")
    if not jobs.is_benchmark(source):
        return jobs.jobs_of_submission(source, submission_of(source, chosen, settings))
    from evalfleet.benchmarks import registry
    from evalfleet.cli.runs.shared.tasks_file import keys_in

    file: str | None = chosen.pop("tasks_file", None)
    if file is not None:
        chosen["task"] = (*chosen.get("task", ()), *keys_in(file, registry.find(source, settings)))
    if "options" in chosen:
        chosen["options"] = own_options(chosen["options"])
    return jobs.jobs_of_benchmark(source, chosen, settings)
