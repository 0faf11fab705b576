"""`evalfleet estimate`."""

from __future__ import annotations

from typing import Any

import click

from evalfleet.answers.machines import Estimate
from evalfleet.cli.shared.cloud_options import cloud_option, region_option, size_option, spot_option
from evalfleet.cli.shared.document import print_document
from evalfleet.cli.shared.options import home_option, json_option

_positive = click.FloatRange(0, min_open=True, max=1e6)


@click.command("estimate")
@click.option("--tasks", type=click.IntRange(1), required=True, help="Number of tasks.")
@click.option("-w", "--workers", type=click.IntRange(1), default=10, show_default=True, help="Number of workers.")
@click.option("--minutes-per-task", type=_positive, default=8.0, show_default=True, help="Minutes per attempt.")
@click.option(
    "--overhead-minutes",
    type=click.FloatRange(0, 1e6),
    default=5.0,
    show_default=True,
    help="Minutes from requesting a machine to its first task.",
)
@click.option("--price", type=click.FloatRange(0, 1e6), metavar="USD", help="Dollars per machine and hour.")
@cloud_option
@size_option
@region_option
@spot_option
@json_option
@home_option
def command(
    tasks: int,
    workers: int,
    minutes_per_task: float,
    overhead_minutes: float,
    price: float | None,
    backend: str | None,
    as_json: bool,
    home: str | None,
    **offer: Any,  # size, region and spot
) -> None:
    """Estimate time, machine hours and cost of a run, for several numbers of workers."""
    from evalfleet import config
    from evalfleet.operations.offers import estimates, seller
    from evalfleet.pools.cloud.estimate import Work

    settings = config.load(home)
    work = Work(tasks=tasks, minutes_per_task=minutes_per_task, overhead_minutes=overhead_minutes)
    found = estimates(settings, seller(settings, backend), work, workers, usd_per_hour=price, **offer)
    if as_json:
        print_document(found)
        return
    usd, kinds = found.usd_per_hour, f"{'spot ' if found.spot else ''}{found.size} in {found.region}"
    dated = "given" if price is not None else (f"as of {found.price_date}" if found.price_date else "not known")
    paid = "price " + ("not known; give --price, or `evalfleet prices --refresh`" if usd is None else f"${usd:.3f}/h")
    click.echo(f"{tasks} tasks of {minutes_per_task:g} minutes on {kinds}: {paid} ({dated})")
    click.echo(f"  {'workers':>8} {'time':>9} {'VM hours':>9} {'cost':>9}  quota")
    for line in (*(_line(one, workers) for one in found.estimates), *found.advice):
        click.echo(line)


def _line(line: Estimate, wanted: int) -> str:
    mark = "*" if line.workers == wanted else " "
    hours, minutes = divmod(round(line.minutes), 60)
    time = f"{hours} h {minutes:02} m" if hours else f"{minutes} m"
    cost = "?" if line.usd is None else f"${line.usd:.2f}"
    short = max((each.missing for each in line.missing or ()), default=0)
    quota = "not asked" if line.missing is None else f"{short} cores short" if short else "enough"
    return f"{mark} {line.workers:>8} {time:>9} {line.vm_hours:>9.1f} {cost:>9}  {quota}"
