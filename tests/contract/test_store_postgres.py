"""The PostgreSQL store keeps the contract of every store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.contract.store.contract import StoreContract
from tests.support.postgres import Server

from evalfleet.store.open import open_store
from evalfleet.store.store import Store
from evalfleet.testing.clock import FakeClock


class TestPostgresStore(StoreContract):
    @pytest.fixture
    def clock(self) -> FakeClock:
        return FakeClock()

    @pytest.fixture
    def home(self, postgres: Server, tmp_path: Path) -> Iterator[Path]:
        with postgres.home(tmp_path / "home") as home:
            yield home

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
