"""Azure, as far as its emulator tells, keeps the contract of every cloud."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from tests.support.cloud import cloud as emulated

from evalfleet.azure import sizes
from evalfleet.azure.cloud import AzureCloud, opened
from evalfleet.layout import Home
from evalfleet.pools.cloud.records import Offering
from evalfleet.testing.cloud_contract import CloudContract


class TestAzure(CloudContract):
    @pytest.fixture
    async def cloud(self, tmp_path: Path) -> AsyncGenerator[AzureCloud]:
        async with emulated() as here, opened(here.settings, Home(tmp_path)) as found:
            yield found

    @pytest.fixture
    def offering(self) -> Offering:
        return Offering(size=sizes.DEFAULT_SIZE, region="eastus")
