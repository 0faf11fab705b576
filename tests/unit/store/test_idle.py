"""What workers cost between their attempts is summed in one pass: live views ask for it again and again."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from evalfleet.store.database.statements import statements

TABLES = """
create table run (id text primary key, created_at real, ended_at real);
create table attempt (run_id text, task_number integer, number integer, host text, worker text, claimed_at real, ended_at real,
                      price_usd_per_hour real, primary key (run_id, task_number, number));
"""
ATTEMPTS = 640


def summed(workers: int) -> tuple[float, int]:
    """Money, and how much work that was. On each worker an attempt of 2 seconds is followed by 1 second of nothing."""
    work = 0

    def count() -> int:
        nonlocal work
        work += 1
        return 0

    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(TABLES)
        connection.executemany("insert into run values (?, 0, null)", [("a",), ("b",)])
        rows = [
            ("a", turn, 1, "h", f"w{turn % workers}", turn // workers * 3.0, turn // workers * 3.0 + 2.0, 3600.0)
            for turn in range(ATTEMPTS)
        ]
        rows.append(("b", 1, 1, "h", "w0", 2.0, 3.0, 3600.0))  # another run has a worker meanwhile
        connection.executemany("insert into attempt values (?, ?, ?, ?, ?, ?, ?, ?)", rows)
        connection.set_progress_handler(count, 100)
        [(usd,)] = connection.execute(statements("sqlite")["sum_idle"], {"run_id": "a", "now": 10_000.0})
    return usd, work


def test_idle_workers_are_summed_in_one_pass():
    (one_usd, one), (many_usd, many) = summed(1), summed(64)
    assert one_usd == pytest.approx(ATTEMPTS - 1 - 1)
    assert many_usd == pytest.approx(ATTEMPTS - 64 - 1)
    assert many < 3 * one, "however many workers there are"
