"""Azure ML as two backends of pools: what can be said of them without Azure's libraries."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from evalfleet.answers.machines import QuotaCounter
from evalfleet.azure import settings as azure_settings
from evalfleet.azure import sizes
from evalfleet.azure.provider import AzureProvider
from evalfleet.config import Settings
from evalfleet.errors import ConfigError
from evalfleet.layout import Home
from evalfleet.pools.cloud.catalogue import Allowance
from evalfleet.pools.cloud.protocol import Cloud
from evalfleet.pools.cloud.records import Offering
from evalfleet.pools.kinds.cloud import CloudKind

if TYPE_CHECKING:
    from evalfleet.azure.clients import Clients
    from evalfleet.hosts.mailbox.boxes import Boxes, BoxStorage


class AzureMlProvider(AzureProvider):
    """Implements `ReachedByMailbox`, `ListsBoxes` and `RunsJobs` besides. A machine is a job on a cluster."""

    name = "azure-ml"
    title = "jobs on clusters that grow and shrink (Azure ML)"
    account_help = "Set EVALFLEET_AZURE_SUBSCRIPTION, EVALFLEET_AZURE_RESOURCE_GROUP and EVALFLEET_AZURE_WORKSPACE to those of the pool"
    keeps_stopped = False
    start_timeout_s = 120.0  # its image is pulled before the job says that it runs

    def is_configured(self, settings: Settings) -> bool:
        return super().is_configured(settings) and settings.azure.workspace is not None

    def account(self, settings: Settings) -> dict[str, str]:
        return {**super().account(settings), "workspace": settings.azure.workspace or ""}

    def require_ready(self, settings: Settings) -> None:
        reach = azure_settings.of(settings)
        reach.workspace_path()
        if reach.storage is None:
            raise ConfigError(
                "azure.storage: not set; the nodes cannot be called, and leave their messages in a storage account: export "
                "EVALFLEET_AZURE_STORAGE=NAME, such as that of the workspace."
            )

    async def allowances(self, settings: Settings, size: str, regions: Sequence[str], *, spot: bool) -> list[Allowance]:
        from evalfleet.azure import clients
        from evalfleet.azure.arm import judged
        from evalfleet.azure.ml.base import tightest
        from evalfleet.azure.ml.workspace import Workspace

        found: list[Allowance] = []
        async with clients.opened(azure_settings.of(settings)) as opened, judged():
            workspace = Workspace(opened.arm, opened.settings)
            for region in regions:
                quota = tightest(await workspace.usages(region), Offering(size=size, region=region, spot=spot))
                name, used, limit = (quota.family, quota.used, quota.limit) if quota else (size, 0, 0)
                counter = QuotaCounter(name=name, used=used, limit=limit)
                found.append(Allowance(region=region, cores=sizes.find(size).vcpus, counters=(counter,)))
        return found

    @asynccontextmanager
    async def boxes(self, settings: Settings, home: Home, pool: str) -> AsyncGenerator[Boxes]:
        from evalfleet.azure.storage import opened_boxes
        from evalfleet.hosts.mailbox.boxes import box_owner

        async with opened_boxes(azure_settings.of(settings), box_owner(home.id or "home", pool)) as found:
            yield found

    @asynccontextmanager
    async def box_storage(self, settings: Settings) -> AsyncGenerator[BoxStorage | None]:
        from evalfleet.azure.storage import opened_storage

        async with opened_storage(azure_settings.of(settings)) as found:
            yield found

    @asynccontextmanager
    async def open(self, settings: Settings, home: Home) -> AsyncGenerator[Cloud]:
        from evalfleet.azure import clients

        reach = azure_settings.of(settings)
        reach.workspace_path()
        async with clients.opened(reach) as opened:
            yield self._cloud(opened, home)

    def _cloud(self, opened: Clients, home: Home) -> Cloud:
        from evalfleet.azure.ml.cloud import MlCloud

        return MlCloud(opened, home)


class AzureMlInstances(AzureMlProvider):
    """A machine is a compute instance."""

    name = "azure-ml-instance"
    title = "compute instances (Azure ML)"
    start_timeout_s = 600.0

    def _cloud(self, opened: Clients, home: Home) -> Cloud:
        from evalfleet.azure.ml.instances import MlInstances

        return MlInstances(opened, home)


KIND = CloudKind(AzureMlProvider())
INSTANCE_KIND = CloudKind(AzureMlInstances())
