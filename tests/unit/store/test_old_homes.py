"""Homes of earlier versions are brought up to date, or left as they were; migrations do not change."""

from __future__ import annotations

import hashlib
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from tests.support.old_homes import FOREIGN, OLD, unpacked

from evalfleet.errors import StoreForeign
from evalfleet.model import TaskState, Verb
from evalfleet.store.database import sqlite, statements
from evalfleet.store.open import open_reader, open_store

FILE = "evalfleet.db"
# A migration that a user's home may have seen never changes. Add a line when one is added.
FROZEN = {
    "0001_initial.sql": "505f1b0a27fed975",
    "0002_pools.sql": "e1e6f12f79cb3df1",
    "0003_hosts.sql": "882eea7ca9ab126a",
    "0004_web.sql": "b5ce1671ae37f44c",
    "0005_worker_events.sql": "306efc7a1d83ebb1",
    "0006_gpus.sql": "f7c382ba92f0def2",
    "0007_loads.sql": "609ec90703bb8bb6",
    "0008_gpu_leases.sql": "64ba38bd31a0c118",
    "0009_gpu_line.sql": "519ec7dafe6014e6",
    "0010_forced_wishes.sql": "76a561599996238a",
    "0011_attempt_price.sql": "de434e4b165bbc3b",
    "0012_judged_at.sql": "d25d21c8cd0efb5b",
    "0013_pausing.sql": "f28bf94947bc72bf",
    "0014_home.sql": "cd07069fe060f6ed",
    "0015_desired_state.sql": "66c609e817154c60",
    "0016_daemon.sql": "2a5d679ede6d1cb4",
    "0017_done.sql": "1db371d909c581e6",
    "0018_plain_words.sql": "feaae7d8bc2a79b4",
    "0019_plans.sql": "712228ae350977d1",
    "0020_tiers.sql": "d31371a53f9c50ac",
    "0021_users.sql": "b368afff5f29f309",
    "0022_retention.sql": "e5db67b2f71e9cbb",
    "0023_controllers.sql": "00deac51e314f9cd",
    "0024_shares.sql": "3b634585c1fcfe41",
}


def dump(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as connection:
        return [str(connection.execute("pragma user_version").fetchone()[0]), *connection.iterdump()]


@pytest.mark.parametrize("commit", OLD)
def test_an_old_home_is_brought_up_to_date_after_a_copy(commit: str, tmp_path: Path):
    home = unpacked(commit, tmp_path)
    before = dump(home / FILE)
    reader = open_reader(home)
    assert reader is not None
    with closing(reader):
        (run,) = reader.runs.newest()
        tasks = {task.spec.key: task for task in reader.tasks.all(run.id)}
        assert {key: task.verdict and task.verdict.score for key, task in tasks.items()} == {
            "good": 0.5,
            "plain": 1.0,
            "bad": None,
        }
        assert {key: task.state for key, task in tasks.items()} == {
            "good": TaskState.DONE,
            "plain": TaskState.DONE,
            "bad": TaskState.FAILED,
        }
        types = [event.type for event in reader.events.of_run(run.id)]
        assert (types.count("task.done"), types.count("task.succeeded")) == (2, 0)
        assert len(reader.attempts.all(run.id, tasks["bad"].number)) == 2
    if OLD[commit] < len(statements.migrations(sqlite.DIALECT)):
        assert dump(home / f"{FILE}.schema-{OLD[commit]}") == before
    with closing(sqlite3.connect(home / FILE)) as connection:
        assert connection.execute("pragma user_version").fetchone()[0] == len(statements.migrations(sqlite.DIALECT))
        assert connection.execute("pragma foreign_key_check").fetchall() == []


@pytest.mark.parametrize("commit", FOREIGN)
@pytest.mark.parametrize("opener", [open_store, open_reader])
def test_a_home_that_cannot_be_brought_up_to_date_is_left_as_it_was(commit: str, opener, tmp_path: Path):
    home = unpacked(commit, tmp_path)
    before = dump(home / FILE)
    with pytest.raises(StoreForeign, match="left as it was") as caught:
        opener(home)
    assert FOREIGN[commit] in str(caught.value)
    assert dump(home / FILE) == before
    assert not list(home.glob(f"{FILE}.schema-*"))


def test_words_that_were_renamed_are_rewritten(tmp_path: Path):
    home = unpacked("78c0f00", tmp_path)
    with closing(sqlite3.connect(home / FILE)) as connection, connection:
        (run,) = connection.execute("select id from run").fetchone()
        for number, old in enumerate(
            ("worker.pardoned", "gpu.pardoned", "worker.wished", "pool.doomed", "worker.ordered")
        ):
            row = (9000 + number, run, old, '{"host": "h-1", "rung": "ssh"}')
            connection.execute("insert into event (number, run_id, at, type, data) values (?, ?, 1.0, ?, ?)", row)
        row = (run, "pardon", "{}", "Ada")
        connection.execute("insert into request (run_id, verb, args, asked_by, asked_at) values (?, ?, ?, ?, 1.0)", row)
    store = open_store(home)
    with closing(store):
        events = [event for event in store.events.of_run(run) if event.number >= 9000]
        assert [event.type for event in events] == [
            "worker.unquarantined",
            "gpu.unquarantined",
            "worker.desired",
            "pool.deleting",
            "worker.ordered",
        ]
        assert events[-1].data == {"host": "h-1", "readiness_check": "ssh"}
        assert [event.number for event in store.events.quarantines(run)] == [9000]
        assert [request.verb for request in store.requests.pending(run)] == [Verb.UNQUARANTINE]


def test_migrations_are_frozen():
    folder = Path(statements.__file__).parents[1] / "migrations" / sqlite.DIALECT
    assert {path.name: hashlib.sha256(path.read_bytes()).hexdigest()[:16] for path in folder.glob("*.sql")} == FROZEN
