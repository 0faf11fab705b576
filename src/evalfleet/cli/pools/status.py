"""`evalfleet pool status`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from evalfleet.cli.options import home_option, json_option
from evalfleet.cli.pools.choosing import chosen, home_of, opened, row_of

if TYPE_CHECKING:
    from evalfleet.layout import Home
    from evalfleet.model import Pool
    from evalfleet.store.base import StoreReader


@click.command("status")
@click.argument("name", required=False)
@click.option("--probe", is_flag=True, help="Ask every host now.")
@json_option
@home_option
def command(name: str | None, probe: bool, as_json: bool, home: str | None) -> None:
    """Show a pool's hosts: workers, price, and what runs there. NAME may be left out when there is one pool."""
    with opened(home) as (reader, pools):
        told = _told(reader, chosen(name, pools), home_of(home), probe)
    click.echo(json.dumps(told) if as_json else _page(told))


def _told(reader: StoreReader | None, pool: Pool, home: Home, probe: bool) -> dict[str, Any]:
    from evalfleet.backends import registry

    kind = registry.kind_of(pool)
    loads = reader.host_loads() if reader is not None else {}
    rows: list[dict[str, Any]] = [
        {
            "host": host.name,
            "workers": host.slots,
            "busy": loads.get(host.name, 0),
            "price_usd_per_hour": host.price_usd_per_hour,
        }
        for host in kind.hosts(pool)
    ]
    if probe:
        import anyio

        found = anyio.run(kind.probe, pool, home)
        rows = [{**row, "probe": found[row["host"]]} for row in rows]
    return {**row_of(pool), "hosts": rows}


def _page(told: dict[str, Any]) -> str:
    lines = [f"pool {told['name']} ({told['backend']}): {told['workers']} workers on {len(told['hosts'])} hosts", ""]
    width = max(len(row["host"]) for row in told["hosts"])
    for row in told["hosts"]:
        line = f"  {row['host']:<{width}}  {row['busy']}/{row['workers']} busy  {row['price_usd_per_hour']:.3f} $/h"
        lines.append(f"{line}  {_probed(row['probe'])}" if "probe" in row else line)
    return "\n".join(lines)


def _probed(probe: dict[str, Any]) -> str:
    if not probe["reachable"]:
        return f"not reached: {probe['error']}"
    has = probe["host"]
    runner = "its runner answers" if probe["answers"] else "no runner"
    disk = f"{has['disk_free_mb'] / 1024:.0f} GB free"
    return f"reached: {has['cpus']} CPUs, {has['memory_mb'] / 1024:.0f} GB, {disk}, Python {has['python']}, {runner}"
