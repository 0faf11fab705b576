"""One real Ray cluster of three nodes for the tests of this folder."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
from tests.support.ray_cluster import RayCluster

from evalfleet.hosts.ray.connection import RayConnection


@pytest.fixture(scope="session")
def cluster() -> Iterator[RayCluster]:
    found = RayCluster()
    yield found
    found.close()


@pytest.fixture(scope="module")
async def connection(cluster: RayCluster) -> AsyncIterator[RayConnection]:
    found = RayConnection(cluster.address)
    yield found
    await found.aclose()
