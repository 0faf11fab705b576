"""`evalfleet pool stop`."""

from __future__ import annotations

import click

from evalfleet.cli.pools.shared.options import worker_option
from evalfleet.cli.shared.options import force_option, home_option, json_option


@click.command("stop")
@click.argument("name", required=False)
@worker_option
@force_option
@json_option
@home_option
def command(name: str | None, worker: str | None, force: bool, as_json: bool, home: str | None) -> int:
    """Deallocate the machines of a pool, or one. Compute cost ends; disks and addresses stay.

    A machine with live or uncollected work of any run gets no more, and stops when that has ended; the
    command waits and says for what. A stopped pool creates no machines. Disks keep their data, so `evalfleet pool
    start` takes minutes. Stopped machines still count against the quota. NAME may be left out when there is one pool. Exit
    codes: 0 done; 3 not all done.
    """
    from evalfleet.cli.pools.shared.apply import ordered
    from evalfleet.operations.pools import stop

    return ordered(lambda store, pool: stop(store, pool, worker, force=force), name, home=home, as_json=as_json)
