from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import machines
from fleet import Fleet, fleet_at
from machines import Hosts


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    yield from fleet_at(tmp_path)


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    yield from machines.hosts_at(tmp_path)
