"""The toy cloud keeps the contract of every cloud."""

import os
from pathlib import Path

import pytest
from evalfleet_sums.toy.cloud import ToyCloud

from evalfleet.pools.cloud.protocol import Cloud
from evalfleet.pools.cloud.records import Offering
from evalfleet.testing.cloud_contract import CloudContract


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class TestToy(CloudContract):
    deadline_s = 0.3

    @pytest.fixture
    def cloud(self, tmp_path: Path) -> Cloud:
        if os.getuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # sshd needs it where it runs as root
        return ToyCloud(tmp_path)

    @pytest.fixture
    def offering(self) -> Offering:
        return Offering(size="small", region="here")
