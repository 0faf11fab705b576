"""`evalfleet pool settle`."""

from __future__ import annotations

import click

from evalfleet.cli.shared.options import home_option, json_option


@click.command("settle")
@click.argument("name", required=False)
@click.option("--again", is_flag=True, help="Let machines in quarantine prove themselves again.")
@json_option
@home_option
def command(name: str | None, again: bool, as_json: bool, home: str | None) -> int:
    """Make a pool what it should be, without a new order: go on where a command that was killed has left it.

    `evalfleet serve` does this for pools that no other process keeps. NAME may be left out when there is one pool. Exit codes: 0 done; 3
    not all of it.
    """
    from evalfleet import config
    from evalfleet.cli.pools.shared.apply import made_true, meant
    from evalfleet.operations.pools import Order
    from evalfleet.store.open import open_store

    settings = config.load(home)
    store = open_store(settings.home)
    try:
        order = Order(pool=meant(store, name).name, again=again)
        return made_true(settings, store, order, as_json=as_json)
    finally:
        store.close()
