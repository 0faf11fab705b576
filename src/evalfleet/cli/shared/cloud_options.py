"""Options of the commands about rented machines."""

from __future__ import annotations

import click

cloud_option = click.option(
    "--backend", metavar="KIND", help="Cloud to ask.  [default: the one that is set up, else azure-vm]"
)
"""Gives the command `backend: str | None`."""

region_option = click.option("--region", metavar="REGION", help="Region.  [default: the cloud's first]")
"""Gives the command `region: str | None`."""

regions_option = click.option(
    "--region", "regions", multiple=True, metavar="REGION", help="Only this region; repeatable."
)
"""Gives the command `regions: tuple[str, ...]`."""

size_option = click.option("--size", metavar="SIZE", help="Machine size.  [default: the cloud's, as for pools]")
"""Gives the command `size: str | None`."""

spot_option = click.option("--spot", is_flag=True, help="Spot machines: cheaper, but can be evicted at any time.")
"""Gives the command `spot: bool`."""
