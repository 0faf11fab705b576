"""`evalfleet prices`."""

from __future__ import annotations

import click

from evalfleet.cli.shared.cloud_options import cloud_option, regions_option
from evalfleet.cli.shared.document import print_document
from evalfleet.cli.shared.options import home_option, json_option


@click.command("prices")
@click.option("--refresh", is_flag=True, help="Fetch the cloud's price list and store it in the home.")
@cloud_option
@regions_option
@click.option("--size", "sizes", multiple=True, metavar="SIZE", help="Only this size; repeatable.")
@json_option
@home_option
def command(
    refresh: bool,
    backend: str | None,
    regions: tuple[str, ...],
    sizes: tuple[str, ...],
    as_json: bool,
    home: str | None,
) -> None:
    """Show the prices of machines, in dollars per hour.

    The package contains dated on-demand prices; --refresh adds spot prices and needs no account.
    """
    from evalfleet import config
    from evalfleet.operations.offers import prices, seller

    def say(text: str) -> None:
        click.echo(text, err=True)

    settings = config.load(home)
    cloud = seller(settings, backend)
    rows = prices(settings, cloud, regions, sizes, refresh=refresh, say=say)
    if as_json:
        print_document(rows)
        return
    if not rows.prices:
        places = ", ".join(regions or cloud.default_regions)
        click.echo(f"no price is known for {places}; `evalfleet prices --refresh` asks the cloud's price list")
        return
    click.echo(f"{'size':<20} {'region':<18} {'$/hour':>8} {'spot':>8}  as of")
    for row in rows.prices:
        spot = "?" if row.spot_usd_per_hour is None else f"{row.spot_usd_per_hour:.3f}"
        click.echo(f"{row.size:<20} {row.region:<18} {row.usd_per_hour:>8.3f} {spot:>8}  {row.date}")
