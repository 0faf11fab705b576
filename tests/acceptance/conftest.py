from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fleet import Fleet, fleet_at


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    yield from fleet_at(tmp_path)
