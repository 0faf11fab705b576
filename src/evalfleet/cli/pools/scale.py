"""`evalfleet pool scale`."""

from __future__ import annotations

import click

from evalfleet.cli.pools.shared.options import duration_option
from evalfleet.cli.shared.options import budget_option, force_option, home_option, json_option


@click.command("scale")
@click.argument("name", required=False)
@click.argument("workers", required=False, type=click.IntRange(0, 1000))
@click.option("--min", type=click.IntRange(0, 1000), help="Follow the queue, from so many …")
@click.option("--max", type=click.IntRange(1, 1000), help="… to so many machines.")
@duration_option("--idle", help="A machine that is idle so long goes.")
@budget_option
@force_option
@json_option
@home_option
def command(
    name: str | None,
    workers: int | None,
    min: int | None,
    max: int | None,
    idle: float | None,
    budget_usd: float | None,
    force: bool,
    as_json: bool,
    home: str | None,
) -> int:
    """Give a pool so many machines, or other limits: `evalfleet pool scale [NAME] 8`.

    Machines that are too many go, those without work first; one that has work of any run, live or not collected yet, gets
    no more, and goes when that has ended: the command waits, and says for what. With --min and --max the pool
    follows what runs need. NAME may be left out when there is one pool. Also lets a pool try again that makes no more
    machines. Exit codes: 0 done; 3 not all of it.
    """
    from evalfleet.cli.pools.shared.apply import ordered
    from evalfleet.operations.pools import scale

    if name is not None and workers is None and name.isdecimal():
        name, workers = None, int(name)
    changes = {"workers": workers, "min": min, "max": max, "idle": idle, "budget_usd": budget_usd}
    return ordered(lambda store, pool: scale(store, pool, changes, force=force), name, home=home, as_json=as_json)
