"""`evalfleet pool list` and `status`."""

from __future__ import annotations

import click

from evalfleet.cli.pools.shared.pools import chosen, opened
from evalfleet.cli.shared.document import print_answer, print_document
from evalfleet.cli.shared.options import home_option, json_option, pool_argument


@click.command("list")
@json_option
@home_option
def list_pools(as_json: bool, home: str | None) -> None:
    """List the pools."""
    from evalfleet import config
    from evalfleet.answers.pools import PoolList
    from evalfleet.operations.machines.pools import status
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
@pool_argument
@click.option("--probe", is_flag=True, help="Ask every host and guest now.")
@json_option
@home_option
def show(name: str | None, probe: bool, as_json: bool, home: str | None) -> int:
    """Show a pool's hosts: workers, price, and what runs there. NAME may be left out when there is one pool.

    With --probe each host is asked, and the guests in its containers; all have 20 seconds to answer. Exit codes: 1 where
    one does not, which is named; else 0.
    """
    from evalfleet import config
    from evalfleet.cli.pools.shared.table import page, unanswered
    from evalfleet.operations.machines.pools import status

    settings = config.load(home)
    with opened(home) as (reader, pools):
        pool = chosen(name, pools)
        assert reader is not None  # a pool was found in it
        if probe:
            import anyio

            from evalfleet.operations.machines.probe import probed

            answer = anyio.run(probed, settings, reader, pool)
        else:
            answer = status(settings, reader, pool)
    print_answer(as_json, answer, page(answer))
    silent = unanswered(answer)
    for what, names in silent.items():
        click.echo(f"evalfleet: {what}: {', '.join(names)}", err=True)
    return 1 if silent else 0
