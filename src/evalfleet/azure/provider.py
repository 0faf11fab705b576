"""Azure as a backend of pools: what can be said of it without its libraries."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial

from msgspec import convert

from evalfleet.answers.machines import MissingQuota, SizeFacts
from evalfleet.azure import prices, quota, sizes
from evalfleet.azure import settings as azure_settings
from evalfleet.azure.settings import ADMIN_USER, DEFAULT_REGIONS
from evalfleet.config import Settings
from evalfleet.errors import InputError, NotFound
from evalfleet.layout import Home
from evalfleet.pools.cloud.catalogue import Allowance, PriceTable
from evalfleet.pools.cloud.protocol import Cloud
from evalfleet.pools.cloud.records import Diagnosis, Offering
from evalfleet.pools.kinds.cloud import CloudKind

_REGION = re.compile(r"[a-z][a-z0-9]{1,39}")


class AzureSizes:
    """What all providers of Azure know of sizes and regions."""

    login_user = ADMIN_USER
    default_size = sizes.DEFAULT_SIZE

    def speed(self, settings: Settings) -> float:
        return (settings.azure.speed or 1.0) if settings.azure.profile == "emulator" else 1.0

    def size(self, name: str) -> str:
        return sizes.find(name).name

    def region(self, name: str) -> str:
        if not _REGION.fullmatch(name):
            raise InputError(f'regions: "{name[:40]}" is no region; write it as Azure does, such as eastus')
        return name

    def memory_gb(self, size: str) -> float | None:
        known = sizes.known(size)
        return known.memory_gb if known else None

    def family(self, size: str) -> str:
        known = sizes.known(size)
        return known.family if known else size


class AzureProvider(AzureSizes):
    """Implements `CloudProvider`, `Catalogue` and `SideCosts`."""

    name = "azure-vm"
    title = "VMs that are made (Azure)"
    default_regions = DEFAULT_REGIONS
    egress_usd_per_gb = prices.EGRESS_USD_PER_GB
    account_help = "Set EVALFLEET_AZURE_SUBSCRIPTION and EVALFLEET_AZURE_RESOURCE_GROUP to those of the pool"

    def is_configured(self, settings: Settings) -> bool:
        return azure_settings.reachable(settings)

    def account(self, settings: Settings) -> dict[str, str]:
        found = azure_settings.of(settings)
        return {"subscription": found.subscription, "resource_group": found.resource_group}

    def require_ready(self, settings: Settings) -> None:
        azure_settings.of(settings).admitted()

    def reach_help(self, settings: Settings) -> str:
        admitted = ", ".join(azure_settings.of(settings).admitted())
        return (
            f"only {admitted} may reach it (azure.ssh_from): is that the public IPv4 address of this machine? "
            "`evalfleet doctor --azure` compares them"
        )

    async def diagnose(
        self, settings: Settings, offerings: Sequence[Offering], workers: int, *, register: bool = False
    ) -> list[Diagnosis]:
        from evalfleet.azure import clients
        from evalfleet.azure.account.checks import Account
        from evalfleet.azure.account.echo import echo

        reach = azure_settings.of(settings)
        async with clients.opened(reach) as opened:
            return await Account(opened, partial(echo, reach)).examine(offerings, workers, register=register)

    def sizes(self) -> list[SizeFacts]:
        return convert(list(sizes.SIZES.values()), list[SizeFacts], from_attributes=True)

    def prices(self, home: Home) -> PriceTable:
        return prices.load(home.prices)

    def refresh_prices(self, settings: Settings, home: Home, regions: Sequence[str], sizes: Sequence[str]) -> int:
        today = datetime.now(UTC).strftime("%Y-%m-%d")
        found = prices.refresh(azure_settings.prices_url(settings), regions, today, sizes=sizes)
        prices.store(home.prices, found)
        return len(found)

    async def allowances(self, settings: Settings, size: str, regions: Sequence[str], *, spot: bool) -> list[Allowance]:
        from evalfleet.azure import clients, skus

        async with clients.opened(azure_settings.of(settings)) as opened:
            for region in regions if sizes.known(size) is None else ():
                row = (await skus.listed(opened.arm, opened.settings.subscription, region)).get(size.lower())
                if row is not None:
                    sizes.learn(skus.size_of(row))
                    break
            else:
                if sizes.known(size) is None:
                    raise NotFound(f"Azure does not list {size} in {', '.join(regions)}; name another size or region")
            kind = sizes.find(size)
            return [quota.allowance(await quota.usages(opened, each), kind, each, spot=spot) for each in regions]

    def kept_usd_per_hour(self, size: str, disk_gb: int) -> float:
        from evalfleet.azure.requests.vm import disk_kind

        return prices.disk_usd_per_hour(disk_kind(sizes.find(size)), disk_gb) + prices.IP_USD_PER_HOUR

    def image_usd_per_hour(self, disk_gb: int) -> float:
        return prices.snapshot_usd_per_hour(disk_gb)

    def quota_advice(self, missing: MissingQuota, region: str) -> str:
        from evalfleet.azure.error_causes import quota_message

        return quota_message(missing, region)

    @asynccontextmanager
    async def open(self, settings: Settings, home: Home) -> AsyncGenerator[Cloud]:
        from evalfleet.azure import clients
        from evalfleet.azure.cloud import AzureCloud

        async with clients.opened(azure_settings.of(settings)) as opened:
            yield AzureCloud(opened, home)


KIND = CloudKind(AzureProvider())
