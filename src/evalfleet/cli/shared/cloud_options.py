"""What the commands about rented machines share: options, and one call to the cloud."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from evalfleet.azure.quota import Usage
    from evalfleet.config import Settings

REGION = "eastus"
SIZE = "Standard_D8ds_v5"

region_option = click.option("--region", default=REGION, show_default=True, metavar="REGION", help="Azure region.")
"""Gives the command `region: str`."""

regions_option = click.option(
    "--region", "regions", multiple=True, metavar="REGION", help="Only this region; repeatable."
)
"""Gives the command `regions: tuple[str, ...]`."""

size_option = click.option("--size", default=SIZE, show_default=True, metavar="SIZE", help="Machine size.")
"""Gives the command `size: str`."""

spot_option = click.option("--spot", is_flag=True, help="Spot machines: cheaper, but can be evicted at any time.")
"""Gives the command `spot: bool`."""


def usages(settings: Settings, regions: list[str]) -> dict[str, Mapping[str, Usage]]:
    """Ask the cloud for the quotas of the regions.

    Raises:
        ConfigError: no cloud is set up.
        CloudError: it refused, or does not answer.
    """
    import anyio

    from evalfleet.azure import settings as azure_settings

    reach = azure_settings.of(settings)

    async def ask() -> dict[str, Mapping[str, Usage]]:
        from evalfleet.azure import clients, vms

        async with clients.opened(reach) as opened:
            cloud = vms.Vms(opened)
            return {region: await cloud.usages(region) for region in regions}

    return anyio.run(ask)
