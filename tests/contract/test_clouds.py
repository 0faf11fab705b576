"""Azure, as far as its emulator tells, keeps the contract of every cloud."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from tests.support.cloud import cloud as emulated

from evalfleet.azure import clients, sizes
from evalfleet.azure.cloud import AzureCloud
from evalfleet.layout import Home
from evalfleet.pools.cloud.records import Offering
from evalfleet.testing.cloud_contract import CloudContract


class TestAzure(CloudContract):
    @pytest.fixture
    async def cloud(self, tmp_path: Path) -> AsyncGenerator[AzureCloud]:
        async with emulated() as here, clients.opened(here.settings) as found:
            yield AzureCloud(found, Home(tmp_path))

    @pytest.fixture
    def offering(self) -> Offering:
        return Offering(size=sizes.DEFAULT_SIZE, region="eastus")
