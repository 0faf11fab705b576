"""The stand-in of Windows Agent Arena for its tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from examples.fake_waa.arena import Arena, arena
from tests.support.fleet import Fleet
from tests.support.waa import configure, names


@pytest.fixture
def waa(tmp_path: Path, fleet: Fleet) -> Iterator[Arena]:
    """One container, with limits that fit a stand-in."""
    with arena(tmp_path / "arena", names(1)) as made:
        configure(fleet, made)
        yield made
