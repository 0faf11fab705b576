"""`evalfleet estimate`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
from msgspec import to_builtins

from evalfleet.cli.shared.cloud_options import region_option, size_option, spot_option, usages
from evalfleet.cli.shared.document import document
from evalfleet.cli.shared.options import home_option, json_option

if TYPE_CHECKING:
    from evalfleet.azure.estimate import Estimate

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
    size: str,
    region: str,
    spot: bool,
    as_json: bool,
    home: str | None,
) -> None:
    """Estimate time, machine hours and cost of a run, for several numbers of workers."""
    from evalfleet import config, layout
    from evalfleet.azure import estimate, prices, settings, sizes
    from evalfleet.pools.cloud.offers import Offering

    ours = config.load(home)
    kind = sizes.find(size)
    known = prices.load(layout.Home(ours.home).prices).find(Offering(size=kind.name, region=region, spot=spot))
    usd = price if price is not None else (known.usd_per_hour if known else None)
    asked = usages(ours, [region])[region] if settings.reachable(ours) else None
    work = estimate.Work(tasks=tasks, minutes_per_task=minutes_per_task, overhead_minutes=overhead_minutes)
    terms = estimate.Terms(size=kind, spot=spot, usd_per_hour=usd, usages=asked)
    lines = [estimate.estimate(work, count, terms) for count in estimate.counts(workers, tasks)]
    if as_json:
        told = {"tasks": tasks, "size": kind.name, "region": region, "spot": spot, "usd_per_hour": usd}
        click.echo(document(told | {"estimates": [to_builtins(line) for line in lines]}))
        return
    dated = "given" if price is not None else (f"as of {known.date}" if known else "not known")
    paid = "price " + ("not known; give --price, or `evalfleet prices --refresh`" if usd is None else f"${usd:.3f}/h")
    kinds = f"{'spot ' if spot else ''}{kind.name} in {region}"
    click.echo(f"{tasks} tasks of {minutes_per_task:g} minutes on {kinds}: {paid} ({dated})")
    for text in _table(lines, workers, region):
        click.echo(text)


def _table(lines: list[Estimate], wanted: int, region: str) -> list[str]:
    from evalfleet.azure import error_causes

    told = [f"  {'workers':>8} {'time':>9} {'VM hours':>9} {'cost':>9}  quota"]
    told += [_line(line, wanted) for line in lines]
    chosen = next(line for line in lines if line.workers == wanted)
    if chosen.missing is None:
        told.append("the quota was not asked for: no subscription is set (EVALFLEET_AZURE_SUBSCRIPTION)")
    else:
        told += [error_causes.quota_message(each, region) for each in chosen.missing]
    return told


def _line(line: Estimate, wanted: int) -> str:
    mark = "*" if line.workers == wanted else " "
    hours, minutes = divmod(round(line.minutes), 60)
    time = f"{hours} h {minutes:02} m" if hours else f"{minutes} m"
    cost = "?" if line.usd is None else f"${line.usd:.2f}"
    missing: Any = line.missing
    quota = (
        "not asked"
        if missing is None
        else ("enough" if not missing else f"{max(m.missing for m in missing)} cores short")
    )
    return f"{mark} {line.workers:>8} {time:>9} {line.vm_hours:>9.1f} {cost:>9}  {quota}"
