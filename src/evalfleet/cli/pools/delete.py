"""`evalfleet pool delete`."""

from __future__ import annotations

import json

import click

from evalfleet.cli.options import home_option, json_option


@click.command("delete")
@click.argument("name")
@json_option
@home_option
def command(name: str, as_json: bool, home: str | None) -> None:
    """Forget a pool. Its machines are left as they are. Refused while a run that is not over uses it."""
    from evalfleet import config
    from evalfleet.store.sqlite import open_store

    store = open_store(config.load(home).home)
    try:
        store.delete_pool(name)
    finally:
        store.close()
    click.echo(json.dumps({"deleted": name}) if as_json else f"pool {name} is deleted; its machines are as they were")
