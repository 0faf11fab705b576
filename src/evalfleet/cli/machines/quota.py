"""`evalfleet quota`."""

from __future__ import annotations

from typing import Any

import click

from evalfleet.cli.shared.cloud_options import regions_option, size_option, spot_option, usages
from evalfleet.cli.shared.document import document
from evalfleet.cli.shared.options import home_option, json_option


@click.command("quota")
@regions_option
@size_option
@click.option(
    "-w", "--workers", type=click.IntRange(1), default=1, show_default=True, help="Number of machines needed."
)
@spot_option
@json_option
@home_option
def command(regions: tuple[str, ...], size: str, workers: int, spot: bool, as_json: bool, home: str | None) -> None:
    """Show the Azure core quota and how many machines fit.

    Stopped (deallocated) machines count like running ones.
    """
    from evalfleet import config
    from evalfleet.azure import settings, sizes

    kind = sizes.find(size)
    places = list(regions) or list(settings.DEFAULT_REGIONS)
    rows = _rows(usages(config.load(home), places), kind, workers, spot)
    if as_json:
        click.echo(document({"quotas": rows}))
        return
    for row in rows:
        counters = ", ".join(f"{each['name']} {each['used']} of {each['limit']} cores" for each in row["counters"])
        click.echo(f"{row['region']:<12} {row['fits']:>4} more {kind.name}: {counters}")
    for row in rows:
        for line in row["missing"]:
            click.echo(line)


def _rows(found: dict[str, Any], size: Any, workers: int, spot: bool) -> list[dict[str, Any]]:
    from evalfleet.azure import error_causes, quota

    rows: list[dict[str, Any]] = []
    for region, counters in found.items():
        names = {name.lower() for name in quota.needed(size, workers, spot=spot)}
        short = quota.missing(counters, size, workers, spot=spot)
        rows.append(
            {
                "region": region,
                "fits": quota.most_workers(counters, size, spot=spot),
                "counters": [
                    {"name": name, "used": usage.used, "limit": usage.limit}
                    for name, usage in counters.items()
                    if name.lower() in names
                ],
                "missing": [error_causes.quota_message(each, region) for each in short],
            }
        )
    return rows
