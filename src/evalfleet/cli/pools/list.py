"""`evalfleet pool list`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from evalfleet.cli.pools.shared.pools import opened
from evalfleet.cli.shared.options import home_option, json_option

if TYPE_CHECKING:
    from evalfleet.model import Pool
    from evalfleet.store.base.store import StoreReader


@click.command("list")
@json_option
@home_option
def command(as_json: bool, home: str | None) -> None:
    """List the pools."""
    with opened(home) as (reader, pools):
        rows = [_row(reader, pool) for pool in pools] if reader is not None else []
    if as_json:
        click.echo(json.dumps({"pools": rows}))
    elif not rows:
        click.echo("no pools yet; `evalfleet pool create NAME --backend ssh --hosts hosts.toml` makes one")
    for row in () if as_json else rows:
        cost = f"  ${row['cost_usd']:.2f} so far" if "cost_usd" in row else ""
        click.echo(f"{row['name']:<20} {row['backend']:<9} {row['hosts']:>3} hosts  {row['workers']:>3} workers{cost}")


def _row(reader: StoreReader, pool: Pool) -> dict[str, Any]:
    from evalfleet.report.pools import told

    answer = told(reader, pool)
    return {**answer, "hosts": len(answer["hosts"])}
