"""`evalfleet sizes`."""

from __future__ import annotations

import click

from evalfleet.cli.shared.cloud_options import cloud_option, region_option
from evalfleet.cli.shared.document import print_document
from evalfleet.cli.shared.options import home_option, json_option


@click.command("sizes")
@cloud_option
@region_option
@json_option
@home_option
def command(backend: str | None, region: str | None, as_json: bool, home: str | None) -> None:
    """Show machine sizes: cores, memory, whether KVM works inside, price."""
    from evalfleet import config
    from evalfleet.operations.offers import seller, sizes

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


def _yes(value: bool) -> str:
    return "yes" if value else "no"
