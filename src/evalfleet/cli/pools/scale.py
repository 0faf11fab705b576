"""`evalfleet pool scale`."""

from __future__ import annotations

from typing import Any

import click

from evalfleet.cli.options import budget_option, home_option, json_option
from evalfleet.cli.pools.renting import duration_option


@click.command("scale")
@click.argument("name", required=False)
@click.argument("workers", required=False, type=click.IntRange(0, 1000))
@click.option("--min", "least", type=click.IntRange(0, 1000), help="Follow the queue, from so many …")
@click.option("--max", "most", type=click.IntRange(1, 1000), help="… to so many machines.")
@duration_option("--idle", help="A machine that is idle so long goes.")
@budget_option
@json_option
@home_option
def command(
    name: str | None,
    workers: int | None,
    least: int | None,
    most: int | None,
    idle: float | None,
    budget_usd: float | None,
    as_json: bool,
    home: str | None,
) -> int:
    """Give a pool so many machines, or other limits: `evalfleet pool scale [NAME] 8`.

    Machines that are too many go, idle ones first; one that works ends its tasks before. With --min and --max the pool
    follows what runs need. NAME may be left out when there is one pool. Also lets a pool try again that makes no more
    machines. Exit codes: 0 done; 3 not all of it.
    """
    from evalfleet import config
    from evalfleet.cli.pools.settling import made_true, meant, merged
    from evalfleet.store.sqlite import open_store

    if name is not None and workers is None and name.isdecimal():
        name, workers = None, int(name)
    settings = config.load(home)
    store = open_store(settings.home)
    try:
        pool = meant(store, name)
        limits = least is not None or most is not None
        changes: dict[str, Any] = {
            "workers": most if workers is None and most is not None else workers,
            "least": least,
            "most": most,
            "idle_s": idle,
            "budget_usd": budget_usd,
            "scales": True if limits else (False if workers is not None else None),
        }
        if workers is not None and not limits:
            changes["most"] = workers
        new = merged(pool, **changes)
        if new["least"] > (new["most"] or new["workers"]):
            raise click.UsageError(f"--min {new['least']} is more than --max {new['most'] or new['workers']}.")
        with store.batch():
            store.amend_pool(pool.name, new)
            store.explain_pool(pool.name, None)
            if not new["scales"]:
                _shed(store, pool.name, new["workers"])
        return made_true(settings, store, pool.name, as_json=as_json)
    finally:
        store.close()


def _shed(store: Any, pool: str, workers: int) -> None:
    """Wish those gone that are too many: those that do not run first, then idle ones, the youngest first."""
    from evalfleet.model import HostState, Wish

    loads = store.host_loads()
    hosts = [host for host in store.hosts(pool) if host.wish is not Wish.GONE and host.state is not HostState.LOST]
    order = sorted(hosts, key=lambda host: (host.wish is Wish.RUNNING, loads.get(host.name, 0) > 0, -host.number))
    names = [host.name for host in order[: max(0, len(hosts) - workers)]]
    store.wish(pool, names, Wish.GONE, f"the pool is scaled to {workers}")
