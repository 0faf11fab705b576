"""`evalfleet quota`."""

from __future__ import annotations

import click

from evalfleet.cli.shared.cloud_options import cloud_option, regions_option, size_option, spot_option
from evalfleet.cli.shared.document import print_document
from evalfleet.cli.shared.options import home_option, json_option


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
def command(
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
    from evalfleet.operations.offers import quotas, seller

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
