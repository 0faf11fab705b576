"""`evalfleet sizes`, `prices` and `quota`: what a cloud offers, for how much, and how much of it."""

from __future__ import annotations

import click

from evalfleet.cli.shared.cloud_options import cloud_option, region_option, regions_option, size_option, spot_option
from evalfleet.cli.shared.document import print_document
from evalfleet.cli.shared.options import home_option, json_option


@click.command("sizes")
@cloud_option
@region_option
@json_option
@home_option
def show_sizes(backend: str | None, region: str | None, as_json: bool, home: str | None) -> None:
    """Show machine sizes: cores, memory, whether KVM works inside, price."""
    from evalfleet import config
    from evalfleet.operations.machines.offers import seller, sizes

    settings = config.load(home)
    found = sizes(settings, seller(settings, backend), region)
    if as_json:
        print_document(found)
        return
    click.echo(f"{'size':<20} {'vCPUs':>5} {'memory':>7} {'KVM':>4} {'temp disk':>9} {'$/hour':>8}  quota family")
    for row in found.sizes:
        price = "?" if row.usd_per_hour is None else f"{row.usd_per_hour:.3f}"
        click.echo(
            f"{row.name:<20} {row.vcpus:>5} {row.memory_gb:>4.0f} GB {_yes(row.nested):>4} "
            f"{_yes(row.temporary_disk):>9} {price:>8}  {row.family}"
        )
    click.echo(f"prices on demand in {found.region}; `evalfleet prices --refresh` brings today's")


@click.command("prices")
@click.option("--refresh", is_flag=True, help="Fetch the cloud's price list and store it in the home.")
@cloud_option
@regions_option
@click.option("--size", "sizes", multiple=True, metavar="SIZE", help="Only this size; repeatable.")
@json_option
@home_option
def show_prices(
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
    from evalfleet.operations.machines.offers import prices, seller

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


@click.command("quota")
@cloud_option
@regions_option
@size_option
@click.option(
    "-w", "--workers", type=click.IntRange(1), default=1, show_default=True, help="Number of machines needed."
)
@spot_option
@json_option
@home_option
def show_quota(
    backend: str | None,
    regions: tuple[str, ...],
    size: str | None,
    workers: int,
    spot: bool,
    as_json: bool,
    home: str | None,
) -> None:
    """Show the account's core quota and how many machines fit.

    Stopped (deallocated) machines count like running ones.
    """
    from evalfleet import config
    from evalfleet.operations.machines.offers import quotas, seller

    settings = config.load(home)
    cloud = seller(settings, backend)
    found = quotas(settings, cloud, size, regions, workers, spot=spot)
    if as_json:
        print_document(found)
        return
    for row in found.quotas:
        counters = ", ".join(f"{each.name} {each.used} of {each.limit} cores" for each in row.counters)
        click.echo(f"{row.region:<12} {row.fits:>4} more {cloud.size(size or cloud.default_size)}: {counters}")
    for line in (line for row in found.quotas for line in row.missing):
        click.echo(line)


def _yes(value: bool) -> str:
    return "yes" if value else "no"
