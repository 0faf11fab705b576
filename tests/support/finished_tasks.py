"""Gives a run any number of finished tasks: copies, made by the database itself, of one that the dispatcher has really driven."""

from __future__ import annotations

from evalfleet.store.database.sqlite import SqliteDatabase
from evalfleet.store.store import Store

_NUMBERS = "with recursive n(i) as (select 1 union all select i + 1 from n where i < :count)"


def add_finished(store: Store, run_id: str, number: int, count: int) -> None:
    """Copy a finished task with its attempt and its events `count` times, each with a number, a key and times of its own.

    Args:
        number: of the finished task. The copies are numbered after all tasks of the run.
    """
    database = store.database
    assert isinstance(database, SqliteDatabase)
    place = {"run": run_id, "number": number, "count": count}
    connection = database.connection
    [(last, key)] = connection.execute(
        "select max(number), (select key from task where run_id = :run and number = :number) from task where run_id = :run",
        place,
    ).fetchall()
    place |= {"last": last, "key": key}
    own: dict[str, dict[str, str]] = {
        "task": {"number": ":last + i", "key": "key || '-' || i"},
        "attempt": {
            "task_number": ":last + i",
            **{name: f"{name} - i * 0.001" for name in ("claimed_at", "started_at", "ended_at", "judged_at")},
        },
        "event": {
            "at": "at - i * 0.001",
            "task": "task || '-' || i",
            "attempt": "run_id || '.' || (:last + i) || substr(attempt, length(run_id || '.' || :number) + 1)",
        },
    }
    where = {
        "task": "run_id = :run and number = :number",
        "attempt": "run_id = :run and task_number = :number",
        "event": "run_id = :run and task = :key",
    }
    with store.batch():
        for table, changed in own.items():
            names = [str(row[1]) for row in connection.execute(f"pragma table_info({table})")]
            names = [name for name in names if (table, name) != ("event", "number")]
            values = ", ".join(changed.get(name, name) for name in names)
            connection.execute(
                f"insert into {table} ({', '.join(names)}) {_NUMBERS} select {values} from n, {table} where {where[table]}",
                place,
            )
