"""`evalfleet pool list`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from evalfleet.cli.pools.shared.pools import opened
from evalfleet.cli.shared.document import print_document
from evalfleet.cli.shared.options import home_option, json_option

if TYPE_CHECKING:
    from evalfleet.answers.pools import PoolCount
    from evalfleet.model import Pool
    from evalfleet.store.reader import StoreReader


@click.command("list")
@json_option
@home_option
def command(as_json: bool, home: str | None) -> None:
    """List the pools."""
    with opened(home) as (reader, pools):
        rows = [_row(reader, pool) for pool in pools] if reader is not None else []
    if as_json:
        from evalfleet.answers.pools import PoolList

        print_document(PoolList(pools=rows))
    elif not rows:
        click.echo("no pools yet; `evalfleet pool create NAME --backend ssh --hosts hosts.toml` makes one")
    for row in () if as_json else rows:
        cost = "" if row.cost_usd is None else f"  ${row.cost_usd:.2f} so far"
        click.echo(f"{row.name:<20} {row.backend:<9} {row.hosts:>3} hosts  {row.workers:>3} workers{cost}")


def _row(reader: StoreReader, pool: Pool) -> PoolCount:
    from evalfleet.report.pools import pool_count, pool_facts

    return pool_count(pool_facts(reader, pool))
