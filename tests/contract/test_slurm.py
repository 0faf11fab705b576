"""A real Slurm cluster of two nodes keeps the contract of every cloud."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.support.slurm import SlurmCluster, needs_slurm, slurm_cluster

from evalfleet.pools.cloud.records import Offering, Pilot
from evalfleet.slurm.cloud import SlurmCloud
from evalfleet.testing.cloud_contract import CloudContract

pytestmark = [needs_slurm, pytest.mark.slow]


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    with slurm_cluster() as found:
        yield found


class TestSlurm(CloudContract):
    """Jobs with a pilot each."""

    keeps_stopped = moves_deadlines = False
    pilot = Pilot(command="sleep 600", secrets={"TOKEN": "t"})

    @pytest.fixture
    def cloud(self, cluster: SlurmCluster, monkeypatch: pytest.MonkeyPatch) -> SlurmCloud:
        for name, value in cluster.environment.items():
            monkeypatch.setenv(name, value)
        return SlurmCloud(["0123456789abcdef"], poll_s=0.2)

    @pytest.fixture
    def offering(self) -> Offering:
        return Offering(size="cpus=1,mem=100M,price=0.5", region="p")
