"""VMs and Batch nodes of Azure, as far as its emulator tells, keep the contract of every cloud."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.support.cloud import cloud as emulated

from evalfleet.azure import clients, sizes
from evalfleet.azure.batch.cloud import BatchCloud
from evalfleet.azure.cloud import AzureCloud
from evalfleet.azure.ml.cloud import MlCloud
from evalfleet.azure.ml.instances import MlInstances
from evalfleet.layout import Home
from evalfleet.pools.cloud.records import Offering, Pilot
from evalfleet.testing.cloud_contract import CloudContract


class TestAzure(CloudContract):
    @pytest.fixture
    async def cloud(self, tmp_path: Path) -> AsyncGenerator[AzureCloud]:
        async with emulated() as here, clients.opened(here.settings) as found:
            yield AzureCloud(found, Home(tmp_path))

    @pytest.fixture
    def offering(self) -> Offering:
        return Offering(size=sizes.DEFAULT_SIZE, region="eastus")


class TestAzureMl(CloudContract):
    """Jobs on clusters."""

    keeps_stopped = moves_deadlines = False
    pilot = Pilot(command="sleep 600", secrets={"TOKEN": "t"})

    @pytest.fixture
    async def cloud(self, tmp_path: Path) -> AsyncGenerator[MlCloud]:
        async with emulated() as here, clients.opened(replace(here.settings, workspace="evalfleet")) as found:
            yield MlCloud(found, Home(tmp_path))

    @pytest.fixture
    def offering(self) -> Offering:
        return Offering(size="Standard_D4ds_v5", region="eastus", spot=True)


class TestAzureMlInstances(TestAzureMl):
    """Compute instances."""

    @pytest.fixture
    async def cloud(self, tmp_path: Path) -> AsyncGenerator[MlInstances]:
        async with emulated() as here, clients.opened(replace(here.settings, workspace="evalfleet")) as found:
            yield MlInstances(found, Home(tmp_path))

    @pytest.fixture
    def offering(self) -> Offering:
        return Offering(size="Standard_D8_v3", region="eastus")


class TestBatch(CloudContract):
    """Jobs with a pilot each."""

    keeps_stopped = False
    deadline_s = 0.0
    pilot = Pilot(command="sleep 600", secrets={"TOKEN": "t"})

    @pytest.fixture
    async def cloud(self, tmp_path: Path) -> AsyncGenerator[BatchCloud]:
        async with (
            emulated(speed=1000) as here,
            clients.opened(replace(here.settings, batch_account="evalfleet")) as found,
        ):
            yield BatchCloud(found, Home(tmp_path))

    @pytest.fixture
    def offering(self) -> Offering:
        return Offering(size="Standard_D2s_v3", region="eastus", spot=True)
