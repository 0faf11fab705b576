"""`evalfleet estimate`: the name that `evalfleet plan --tasks N` had in version 0.1."""

from __future__ import annotations

from typing import Any

import click

from evalfleet.cli.shared.cloud_options import cloud_option, region_option, size_option, spot_option
from evalfleet.cli.shared.options import home_option, json_option

_positive = click.FloatRange(0, min_open=True, max=1e6)


@click.command("estimate", hidden=True)
@click.option("--tasks", type=click.IntRange(1), required=True)
@click.option("-w", "--workers", type=click.IntRange(1), default=10)
@click.option("--minutes-per-task", type=_positive, default=8.0)
@click.option("--overhead-minutes", "start_minutes", type=click.FloatRange(0, 1e6), default=5.0)
@click.option("--price", type=click.FloatRange(0, 1e6), metavar="USD")
@cloud_option
@size_option
@region_option
@spot_option
@json_option
@home_option
@click.pass_context
def command(
    ctx: click.Context, size: str | None, region: str | None, backend: str | None, home: str | None, **given: Any
) -> int:
    """Plan a run of this many tasks on this many workers."""
    from evalfleet import config
    from evalfleet.cli.machines.plan import command as plan
    from evalfleet.operations.machines.offers import seller

    click.echo("evalfleet: `estimate` is called `plan --tasks N` now; this name goes with the next version", err=True)
    cloud = seller(config.load(home), backend)
    place = region or cloud.default_regions[0]
    result: int = ctx.invoke(
        plan, **given, size=size or cloud.default_size, regions=place, backend=backend, home=home, memory={}
    )
    return result
