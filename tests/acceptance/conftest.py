from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support import machines
from tests.support.fleet import Fleet, fleet_at
from tests.support.machines import Hosts


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    yield from fleet_at(tmp_path)


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    yield from machines.hosts_at(tmp_path)
