"""`evalfleet pool scale`."""

from __future__ import annotations

import click

from evalfleet.cli.pools.shared.options import duration_option
from evalfleet.cli.shared.options import budget_option, force_option, home_option, json_option


@click.command("scale")
@click.argument("name", required=False)
@click.argument("workers", required=False, type=click.IntRange(0, 1000))
@click.option("--min", type=click.IntRange(0, 1000), help="Scale with the queue: minimum number of machines.")
@click.option("--max", type=click.IntRange(1, 1000), help="Scale with the queue: maximum number of machines.")
@duration_option("--idle", help="Remove a machine after this much idle time.")
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
    """Set the number of machines of a pool, or its limits: `evalfleet pool scale [NAME] 8`.

    Surplus machines are removed, idle ones first. A machine with live or uncollected work of any run gets
    no more work and is removed when that has ended; the command waits and says for what. With --min and --max the pool
    follows the queue. NAME may be left out when there is one pool. Also makes a pool try again that creates no more
    machines. Exit codes: 0 done; 3 not all done.
    """
    from evalfleet.cli.pools.shared.apply import ordered
    from evalfleet.operations.pools import scale

    if name is not None and workers is None and name.isdecimal():
        name, workers = None, int(name)
    changes = {"workers": workers, "min": min, "max": max, "idle": idle, "budget_usd": budget_usd}
    return ordered(lambda store, pool: scale(store, pool, changes, force=force), name, home=home, as_json=as_json)
