"""`evalfleet pool list` and `status`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from msgspec.structs import replace

from evalfleet.cli.pools.shared.pools import chosen, home_of, opened
from evalfleet.cli.shared.document import print_answer, print_document
from evalfleet.cli.shared.options import home_option, json_option

if TYPE_CHECKING:
    from evalfleet.answers.pools import HostRow
    from evalfleet.layout import Home
    from evalfleet.model import Pool
    from evalfleet.store.reader import StoreReader


@click.command("list")
@json_option
@home_option
def list_pools(as_json: bool, home: str | None) -> None:
    """List the pools."""
    from evalfleet import config
    from evalfleet.answers.pools import PoolList
    from evalfleet.operations.pools import status
    from evalfleet.report.pools import pool_count

    settings = config.load(home)
    with opened(home) as (reader, pools):
        rows = [pool_count(status(settings, reader, pool)) for pool in pools] if reader is not None else []
    if as_json:
        print_document(PoolList(pools=rows))
        return
    for row in rows:
        cost = "" if row.cost_usd is None else f"  ${row.cost_usd:.2f} so far"
        click.echo(f"{row.name:<20} {row.backend:<9} {row.hosts:>3} hosts  {row.workers:>3} workers{cost}")
    if not rows:
        click.echo("no pools yet; `evalfleet pool create NAME --backend ssh --hosts hosts.toml` makes one")


@click.command("status")
@click.argument("name", required=False)
@click.option("--probe", is_flag=True, help="Connect to every host now.")
@json_option
@home_option
def show(name: str | None, probe: bool, as_json: bool, home: str | None) -> int:
    """Show a pool's hosts: workers, price, and what runs there. NAME may be left out when there is one pool.

    With --probe each host has 20 seconds to answer. Exit codes: 1 where one does not, which is named; else 0.
    """
    from evalfleet import config
    from evalfleet.cli.pools.shared.table import page
    from evalfleet.operations.pools import status

    with opened(home) as (reader, pools):
        pool = chosen(name, pools)
        assert reader is not None  # a pool was found in it
        answer = status(config.load(home), reader, pool)
        if probe:
            answer = replace(answer, hosts=_probed(reader, pool, home_of(home), answer.hosts))
    print_answer(as_json, answer, page(answer))
    silent = [row.host for row in answer.hosts if row.probe is not None and not row.probe["reachable"]]
    if silent:
        click.echo(f"evalfleet: not reached: {', '.join(silent)}", err=True)
    return 1 if silent else 0


def _probed(reader: StoreReader, pool: Pool, home: Home, hosts: list[HostRow]) -> list[HostRow]:
    import anyio

    from evalfleet.hosts.probe import probe
    from evalfleet.pools.kinds import registry

    found = anyio.run(probe, registry.kind_of(pool).reachable(pool, reader.hosts.of_pool(pool.name)), home)
    return [replace(row, probe=found[row.host]) for row in hosts]
