"""The statements that run often find their rows by an index, however long the tables are."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.store import cases

from evalfleet import store as store_package
from evalfleet.model import TaskState
from evalfleet.store.database.sqlite import DIALECT, SqliteDatabase
from evalfleet.store.database.statements import statements
from evalfleet.store.open import open_store
from evalfleet.store.store import Store

TASKS = 20_000


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    store = open_store(Path(tmp_path_factory.mktemp("home")))
    yield store
    store.close()


def database(store: Store) -> SqliteDatabase:
    found = store.database
    assert isinstance(found, SqliteDatabase)
    return found


@pytest.mark.parametrize(
    ("name", "index"),
    [
        ("select_candidates", "COVERING INDEX task_order (run_id=? AND state=?)"),
        ("select_shard_candidates", "COVERING INDEX task_order (run_id=? AND state=?)"),
        ("select_next_due", "INDEX task_due (run_id=? AND not_before>?)"),
        ("count_tasks", "COVERING INDEX task_order (run_id=?)"),
        ("complete_run", "COVERING INDEX task_order (run_id=? AND state=?)"),
        ("cancel_tasks", "INDEX task_order (run_id=? AND state=?)"),
        ("claim_task", "INDEX attempt_host (host=?)"),
        ("select_unended", "INDEX attempt_unended (run_id=?)"),
        ("renew_leases", "INDEX attempt_unended (run_id=? AND state=?)"),
        ("count_siblings", "PRIMARY KEY (run_id=? AND task_number=?)"),
        ("finish_attempt", "PRIMARY KEY (run_id=? AND task_number=? AND number=?)"),
        ("expect_tasks", "INDEX task_history (key=?)"),
        ("select_has_history", "INDEX task_history"),
        ("select_events", "INDEX event_run (run_id=? AND number>?)"),
        ("select_worker_events", "INDEX event_worker (run_id=?)"),
        ("select_pending_requests", "INDEX request_pending (run_id=?)"),
        ("select_load_piece", "PRIMARY KEY (host=? AND begins=?)"),
        ("select_load_pieces", "PRIMARY KEY (host=? AND begins>? AND begins<?)"),
        ("select_thick_pieces", "INDEX host_load_old (thin=? AND begins<?)"),
        ("select_last_pieces", "INDEX host_load_old (thin=? AND begins>?)"),
        ("drop_old_pieces", "INDEX host_load_old (thin=? AND begins<?)"),
    ],
)
def test_an_index_is_used(store: Store, name: str, index: str) -> None:
    sql = statements(DIALECT)[name]
    values = dict.fromkeys(re.findall(r":(\w+)", sql), 1)
    plan = [row["detail"] for row in database(store).connection.execute(f"explain query plan {sql}", values)]
    assert any(index in step for step in plan), plan
    assert not any(step.startswith("SCAN") and "INDEX" not in step and "history" not in step for step in plan), plan


def test_every_statement_is_used() -> None:
    source = "".join(path.read_text() for path in Path(store_package.__file__).parent.rglob("*.py"))
    unused = [name for name in statements(DIALECT) if f'"{name}"' not in source]
    assert unused == []


def test_thousands_that_wait_for_their_time_do_not_slow_placement(store: Store) -> None:
    run = cases.submit(store, TASKS)
    connection, far = database(store).connection, store.now() + 1e6
    with store.batch():
        connection.execute("update task set not_before = ?, rank = 9 where run_id = ? and number > 10", (far, run.id))
    began = time.process_time()
    for _ in range(10):
        assert len(store.tasks.candidates(run.id, 100)) == 10
        assert store.tasks.next_due(run.id) == far
    assert (time.process_time() - began) / 10 < 0.05


def test_counts_of_ten_thousand_finished_tasks_are_quick(store: Store) -> None:
    run = cases.submit(store, 10_000)
    with store.batch():
        database(store).connection.execute(
            "update task set state = 'done', score = 1, success = 1 where run_id = ?", (run.id,)
        )
    began = time.process_time()
    assert store.tasks.counts(run.id)[TaskState.DONE] == 10_000
    assert store.tasks.counts(run.id)[TaskState.DONE] == 10_000
    assert time.process_time() - began < 0.1


def test_history_of_many_domains_does_not_slow_a_submit(store: Store) -> None:
    keys = [f"key_{number}" for number in range(5000)]
    specs = [cases.task_spec(key, domain=key) for key in keys]
    first = store.runs.submit("n", cases.Policy(), specs, folder="/", base_env={})
    with store.batch():
        database(store).connection.execute(
            "update task set state = 'done', score = 1, success = 1, duration_s = number where run_id = ?",
            (first.id,),
        )
    began = time.process_time()
    second = store.runs.submit("n", cases.Policy(), [*specs, cases.task_spec("new")], folder="/", base_env={})
    assert time.process_time() - began < 2
    assert [task.key for task in store.tasks.candidates(second.id, 2)] == ["key_4999", "key_4998"]


def test_counts_stand_for_attempts(tmp_path: Path) -> None:
    """A task's `consumed` and `lost` are what its attempts say."""
    store = open_store(tmp_path)
    run = cases.drive(store, 3)
    for number, outcome in ((1, "LOST"), (1, "TASK_ERROR"), (2, "LOST"), (3, "CANCELLED")):
        attempt = cases.claimed(store, run, number).attempt
        cases.finished(store, run, cases.with_failure(attempt, outcome=cases.Outcome[outcome]))
    wrong = database(store).connection.execute(
        "select key from task t where consumed <> (select count(*) from attempt a where a.run_id = t.run_id"
        " and a.task_number = t.number and counted = 'consumed') or lost <> (select count(*) from attempt a"
        " where a.run_id = t.run_id and a.task_number = t.number and counted = 'lost')"
    )
    assert wrong.fetchall() == []
    assert [(task.consumed, task.lost) for task in store.tasks.all(run.id)] == [(1, 1), (0, 1), (0, 0)]
    store.close()
