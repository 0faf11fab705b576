"""`evalfleet pool scale`, `stop`, `start` and `settle`."""

from __future__ import annotations

from contextlib import closing

import click

from evalfleet.cli.pools.shared.options import worker_option
from evalfleet.cli.shared.options import (
    budget_option,
    duration_option,
    force_option,
    home_option,
    json_option,
    pool_argument,
)


@click.command("scale")
@pool_argument
@click.argument("workers", required=False, type=click.IntRange(0, 1000))
@click.option("--min", type=click.IntRange(0, 1000), help="Scale with the queue: minimum number of machines.")
@click.option("--max", type=click.IntRange(1, 1000), help="Scale with the queue: maximum number of machines.")
@duration_option("--idle", help="Remove a machine after this much idle time.")
@budget_option
@force_option
@json_option
@home_option
def scale(
    name: str | None, workers: int | None, force: bool, as_json: bool, home: str | None, **limits: float | None
) -> int:
    """Set the number of machines of a pool, or its limits: `evalfleet pool scale [NAME] 8`.

    Surplus machines are removed, idle ones first. A machine with live or uncollected work of any run gets
    no more work and is removed when that has ended; the command waits and says for what. With --min and --max the pool
    follows the queue. NAME may be left out when there is one pool. Also makes a pool try again that creates no more
    machines. Exit codes: 0 done; 3 not all done.
    """
    from evalfleet.cli.pools.shared.apply import ordered
    from evalfleet.operations.machines import pools

    if name is not None and workers is None and name.isdecimal():
        name, workers = None, int(name)
    changes = {"workers": workers, **limits}
    return ordered(lambda store, pool: pools.scale(store, pool, changes, force=force), name, home=home, as_json=as_json)


@click.command("stop")
@pool_argument
@worker_option
@force_option
@json_option
@home_option
def stop(name: str | None, worker: str | None, force: bool, as_json: bool, home: str | None) -> int:
    """Deallocate the machines of a pool, or one. Compute cost ends; disks and addresses stay.

    A machine with live or uncollected work of any run gets no more, and stops when that has ended; the
    command waits and says for what. A stopped pool creates no machines. Disks keep their data, so `evalfleet pool
    start` takes minutes. Stopped machines still count against the quota. NAME may be left out when there is one pool. Exit
    codes: 0 done; 3 not all done.
    """
    from evalfleet.cli.pools.shared.apply import ordered
    from evalfleet.operations.machines import pools

    return ordered(lambda store, pool: pools.stop(store, pool, worker, force=force), name, home=home, as_json=as_json)


@click.command("start")
@pool_argument
@worker_option
@json_option
@home_option
def start(name: str | None, worker: str | None, as_json: bool, home: str | None) -> int:
    """Start the stopped machines of a pool, or one, and check that they are ready; quarantined ones are checked again.

    NAME may be left out when there is one pool. Exit codes: 0 ready; 3 not all are.
    """
    from evalfleet.cli.pools.shared.apply import ordered
    from evalfleet.operations.machines import pools

    return ordered(lambda store, pool: pools.start(store, pool, worker), name, home=home, as_json=as_json)


@click.command("settle")
@pool_argument
@click.option("--again", is_flag=True, help="Run the readiness checks of quarantined machines again.")
@json_option
@home_option
def settle(name: str | None, again: bool, as_json: bool, home: str | None) -> int:
    """Finish changes to a pool that a killed command left undone; change nothing else.

    `evalfleet serve` does this for pools without a controller. NAME may be left out when there is one pool. Exit codes: 0 done; 3
    not all done.
    """
    from evalfleet import config
    from evalfleet.cli.pools.shared.apply import made_true, meant
    from evalfleet.operations.machines.pools import Order
    from evalfleet.store.open import open_store

    settings = config.load(home)
    with closing(open_store(settings.home)) as store:
        pool = meant(
            store, name
        )  # one that said why it creates no more machines is asked again by `start` or `scale` only
        order = Order(pool=pool.name, again=again, creates=pool.reason is None)
        return made_true(settings, store, order, as_json=as_json)
