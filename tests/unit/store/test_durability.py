"""What no crash test on a living machine can show: that commits reach the disk."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from evalfleet.store.database.clock import SteadyClock
from evalfleet.store.database.sqlite import SqliteDatabase
from evalfleet.store.open import open_store


def test_every_commit_is_synchronous(home: Path) -> None:
    open_store(home).close()
    database = SqliteDatabase(home, readonly=False, clock=time.time)
    assert database.connection.execute("pragma synchronous").fetchone()[0] == 2
    assert database.connection.execute("pragma journal_mode").fetchone()[0] == "wal"
    database.close()


def test_a_clock_that_is_set_back_does_not_move_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SteadyClock()
    before = clock()
    monkeypatch.setattr(time, "time", lambda: before - 3600)
    assert before <= clock() < before + 60
