"""A real Slurm cluster of two nodes for each test of this folder: it is up in a second."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.support.slurm import SlurmCluster, slurm_cluster


@pytest.fixture
def cluster() -> Iterator[SlurmCluster]:
    with slurm_cluster() as found:
        yield found
