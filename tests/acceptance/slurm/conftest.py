"""One real Slurm cluster of two nodes for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.support.slurm import SlurmCluster, slurm_cluster


@pytest.fixture(scope="session")
def cluster() -> Iterator[SlurmCluster]:
    with slurm_cluster() as found:
        yield found
