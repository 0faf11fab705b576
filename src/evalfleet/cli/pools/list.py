"""`evalfleet pool list`."""

from __future__ import annotations

import json

import click

from evalfleet.cli.options import home_option, json_option
from evalfleet.cli.pools.choosing import opened, row_of


@click.command("list")
@json_option
@home_option
def command(as_json: bool, home: str | None) -> None:
    """List the pools."""
    with opened(home) as (_, pools):
        rows = [row_of(pool) for pool in pools]
    if as_json:
        click.echo(json.dumps({"pools": rows}))
    elif not rows:
        click.echo("no pools yet; `evalfleet pool create NAME --backend ssh --hosts hosts.toml` makes one")
    for row in () if as_json else rows:
        click.echo(f"{row['name']:<20} {row['backend']:<9} {row['hosts']:>3} hosts  {row['workers']:>3} workers")
