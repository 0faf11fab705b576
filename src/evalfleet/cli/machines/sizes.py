"""`evalfleet sizes`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from evalfleet.cli.shared.cloud_options import region_option
from evalfleet.cli.shared.document import document
from evalfleet.cli.shared.options import home_option, json_option

if TYPE_CHECKING:
    from evalfleet.azure.prices import PriceTable


@click.command("sizes")
@region_option
@json_option
@home_option
def command(region: str, as_json: bool, home: str | None) -> None:
    """Show machine sizes: cores, memory, whether KVM works inside, price."""
    from evalfleet import config, layout
    from evalfleet.azure import prices

    known = prices.load(layout.Home(config.load(home).home).prices)
    rows = _rows(region, known)
    if as_json:
        click.echo(document({"region": region, "sizes": rows}))
        return
    click.echo(f"{'size':<20} {'vCPUs':>5} {'memory':>7} {'KVM':>4} {'temp disk':>9} {'$/hour':>8}  quota family")
    for row in rows:
        price = "?" if row["usd_per_hour"] is None else f"{row['usd_per_hour']:.3f}"
        click.echo(
            f"{row['name']:<20} {row['vcpus']:>5} {row['memory_gb']:>4.0f} GB {_yes(row['nested']):>4} "
            f"{_yes(row['temporary_disk']):>9} {price:>8}  {row['family']}"
        )
    click.echo(f"prices on demand in {region}; `evalfleet prices --refresh` brings today's")


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def _rows(region: str, known: PriceTable) -> list[dict[str, Any]]:
    from evalfleet.azure.sizes import SIZES
    from evalfleet.pools.cloud.offers import Offering

    rows: list[dict[str, Any]] = []
    for size in SIZES.values():
        price = known.find(Offering(size=size.name, region=region))
        rows.append(
            {
                "name": size.name,
                "vcpus": size.vcpus,
                "memory_gb": size.memory_gb,
                "nested": size.nested,
                "temporary_disk": size.series.temporary_disk,
                "family": size.family,
                "usd_per_hour": price.usd_per_hour if price else None,
            }
        )
    return rows
