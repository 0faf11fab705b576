"""`evalfleet pool stop`."""

from __future__ import annotations

import click

from evalfleet.cli.options import home_option, json_option
from evalfleet.cli.pools.renting import worker_option


@click.command("stop")
@click.argument("name", required=False)
@worker_option
@json_option
@home_option
def command(name: str | None, worker: str | None, as_json: bool, home: str | None) -> int:
    """Deallocate the machines of a pool, or one: what they cost while they run ends; disks and addresses stay.

    A machine that works ends its tasks before. Their disks keep what is on them, so that `evalfleet pool start` takes
    minutes. Stopped machines still count against the quota. NAME may be left out when there is one pool. Exit codes: 0
    done; 3 not all of it.
    """
    from evalfleet.cli.pools.settling import ordered
    from evalfleet.fleet.ordering import stop

    return ordered(stop, name, worker, home=home, as_json=as_json)
