"""The SQLite store keeps the contract of every store."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.contract.store.contract import StoreContract

from evalfleet.store.open import open_store
from evalfleet.store.store import Store
from evalfleet.testing.clock import FakeClock

# What is tested here is not the disk, and memory is faster.
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


class TestSqliteStore(StoreContract):
    @pytest.fixture
    def clock(self) -> FakeClock:
        return FakeClock()

    @pytest.fixture
    def home(self) -> Iterator[Path]:
        with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
            yield Path(folder)

    @pytest.fixture
    def store(self, home: Path, clock: FakeClock) -> Iterator[Store]:
        store = open_store(home, clock)
        yield store
        store.close()

    @pytest.fixture
    def another(self, home: Path, clock: FakeClock) -> Iterator[Store]:
        another = open_store(home, clock)
        yield another
        another.close()
