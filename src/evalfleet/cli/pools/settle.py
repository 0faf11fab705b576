"""`evalfleet pool settle`."""

from __future__ import annotations

import click

from evalfleet.cli.shared.options import home_option, json_option


@click.command("settle")
@click.argument("name", required=False)
@click.option("--again", is_flag=True, help="Run the readiness checks of quarantined machines again.")
@json_option
@home_option
def command(name: str | None, again: bool, as_json: bool, home: str | None) -> int:
    """Finish changes to a pool that a killed command left undone; change nothing else.

    `evalfleet serve` does this for pools without a controller. NAME may be left out when there is one pool. Exit codes: 0 done; 3
    not all done.
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
