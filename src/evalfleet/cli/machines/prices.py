"""`evalfleet prices`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from evalfleet.cli.shared.cloud_options import regions_option
from evalfleet.cli.shared.document import document
from evalfleet.cli.shared.options import home_option, json_option

if TYPE_CHECKING:
    from evalfleet.azure.prices import PriceTable
    from evalfleet.config import Settings


@click.command("prices")
@click.option("--refresh", is_flag=True, help="Fetch Azure's price list and store it in the home.")
@regions_option
@click.option("--size", "sizes", multiple=True, metavar="SIZE", help="Only this size; repeatable.")
@json_option
@home_option
def command(refresh: bool, regions: tuple[str, ...], sizes: tuple[str, ...], as_json: bool, home: str | None) -> None:
    """Show the prices of machines, in dollars per hour.

    The package contains dated on-demand prices; --refresh adds spot prices and needs no account.
    """
    from evalfleet import config, layout
    from evalfleet.azure import prices, settings
    from evalfleet.azure import sizes as size_table

    ours = config.load(home)
    wanted = [size_table.find(size).name for size in sizes] or list(size_table.SIZES)
    places = list(regions) or list(settings.DEFAULT_REGIONS)
    path = layout.Home(ours.home).prices
    if refresh:
        _refresh(ours, places, wanted)
    rows = _rows(prices.load(path), places, wanted)
    if as_json:
        click.echo(document({"prices": rows}))
        return
    if not rows:
        click.echo(f"no price is known for {', '.join(places)}; `evalfleet prices --refresh` asks Azure's price list")
        return
    click.echo(f"{'size':<20} {'region':<18} {'$/hour':>8} {'spot':>8}  as of")
    for row in rows:
        spot = "?" if row["spot_usd_per_hour"] is None else f"{row['spot_usd_per_hour']:.3f}"
        click.echo(f"{row['size']:<20} {row['region']:<18} {row['usd_per_hour']:>8.3f} {spot:>8}  {row['date']}")


def _refresh(settings: Settings, regions: list[str], sizes: list[str]) -> None:
    from datetime import UTC, datetime

    from evalfleet import layout
    from evalfleet.azure import prices
    from evalfleet.azure.settings import prices_url

    today = datetime.now(UTC).strftime("%Y-%m-%d")
    found = prices.refresh(prices_url(settings), regions, today, sizes=sizes)
    prices.store(layout.Home(settings.home).prices, found)
    click.echo(f"{len(found)} prices read for {', '.join(regions)}", err=True)


def _rows(known: PriceTable, regions: list[str], sizes: list[str]) -> list[dict[str, Any]]:
    from evalfleet.pools.cloud.offers import Offering

    rows: list[dict[str, Any]] = []
    for region in regions:
        for size in sizes:
            price = known.find(Offering(size=size, region=region))
            spot = known.find(Offering(size=size, region=region, spot=True))
            if price is not None:
                rows.append(
                    {
                        "size": size,
                        "region": region,
                        "usd_per_hour": price.usd_per_hour,
                        "spot_usd_per_hour": spot.usd_per_hour if spot else None,
                        "date": price.date,
                    }
                )
    return rows
