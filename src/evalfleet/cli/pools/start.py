"""`evalfleet pool start`."""

from __future__ import annotations

import click

from evalfleet.cli.pools.shared.options import worker_option
from evalfleet.cli.shared.options import home_option, json_option


@click.command("start")
@click.argument("name", required=False)
@worker_option
@json_option
@home_option
def command(name: str | None, worker: str | None, as_json: bool, home: str | None) -> int:
    """Start the stopped machines of a pool, or one, and check that they are ready; quarantined ones are checked again.

    NAME may be left out when there is one pool. Exit codes: 0 ready; 3 not all are.
    """
    from evalfleet.cli.pools.shared.apply import ordered
    from evalfleet.operations.pools import start

    return ordered(lambda store, pool: start(store, pool, worker), name, home=home, as_json=as_json)
