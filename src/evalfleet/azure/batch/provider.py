"""Azure Batch as a backend of pools: what can be said of it without Azure's libraries."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from evalfleet.azure import settings as azure_settings
from evalfleet.azure.provider import AzureSizes
from evalfleet.azure.settings import AzureSettings
from evalfleet.config import Settings
from evalfleet.errors import ConfigError
from evalfleet.layout import Home
from evalfleet.pools.kinds.cloud import CloudKind

if TYPE_CHECKING:
    from evalfleet.azure.batch.cloud import BatchCloud
    from evalfleet.hosts.mailbox.boxes import Boxes, BoxStorage


class BatchProvider(AzureSizes):
    """Implements `CloudProvider`, `ReachedByMailbox` and `ListsBoxes`."""

    name = "azure-batch"
    title = "Nodes of Azure Batch"
    default_regions = ("eastus",)
    keeps_stopped = False
    account_help = (
        "Set EVALFLEET_AZURE_SUBSCRIPTION, EVALFLEET_AZURE_RESOURCE_GROUP and EVALFLEET_AZURE_BATCH_ACCOUNT to those "
        "of the pool"
    )

    def is_configured(self, settings: Settings) -> bool:
        return azure_settings.reachable(settings) and settings.azure.batch_account is not None

    def account(self, settings: Settings) -> dict[str, str]:
        found = _settings(settings)
        named = {"subscription": found.subscription, "resource_group": found.resource_group}
        return {**named, "batch_account": found.batch_account or ""}

    def require_ready(self, settings: Settings) -> None:
        if _settings(settings).storage is None:
            raise ConfigError(
                "azure.storage: not set; Batch nodes cannot be called, and need a storage account for their messages: "
                "export EVALFLEET_AZURE_STORAGE=NAME"
            )

    @asynccontextmanager
    async def open(self, settings: Settings, home: Home) -> AsyncGenerator[BatchCloud]:
        from evalfleet.azure import clients
        from evalfleet.azure.batch.cloud import BatchCloud

        async with clients.opened(_settings(settings)) as opened:
            yield BatchCloud(opened, home)

    @asynccontextmanager
    async def boxes(self, settings: Settings, home: Home, pool: str) -> AsyncGenerator[Boxes]:
        from evalfleet.azure.storage import opened_boxes
        from evalfleet.hosts.mailbox.boxes import box_owner

        async with opened_boxes(_settings(settings), box_owner(home.id or "home", pool)) as found:
            yield found

    @asynccontextmanager
    async def box_storage(self, settings: Settings) -> AsyncGenerator[BoxStorage | None]:
        from evalfleet.azure.storage import opened_storage

        async with opened_storage(_settings(settings)) as found:
            yield found


def _settings(settings: Settings) -> AzureSettings:
    """Raises ConfigError where no Batch account is named."""
    found = azure_settings.of(settings)
    if not found.batch_account:
        raise ConfigError(
            "azure.batch_account: not set; export EVALFLEET_AZURE_BATCH_ACCOUNT=NAME, one of "
            f"`az batch account list -g {found.resource_group}` (the emulator's is evalfleet)"
        )
    return found


KIND = CloudKind(BatchProvider())
