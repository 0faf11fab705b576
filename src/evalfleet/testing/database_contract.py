"""The contract of a database under a store: what every kind must do besides executing statements.

Its tests subclass `DatabaseContract` and give two fixtures: `store`, an empty `Store` over the database, measured by the clock
of the fixture `clock`, and `another`, a second one over the same data.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from evalfleet.errors import InputError
from evalfleet.model import Policy, Run, TaskSpec
from evalfleet.store.database.base import Conflict
from evalfleet.store.store import Store
from evalfleet.testing.clock import FakeClock


def submitted(store: Store, tasks: int) -> Run:
    """A new run with that many tasks."""
    specs = [TaskSpec(key=f"task_{number}", domain="d", command=("true",)) for number in range(1, tasks + 1)]
    return store.runs.submit("a run", Policy(), specs, folder="/tmp", base_env={})


def task_values(run_id: str, numbers: range, key: str = "more") -> Iterator[dict[str, Any]]:
    for number in numbers:
        values = {"number": number, "key": f"{key}_{number}", "domain": "d"}
        yield {"run_id": run_id, **values, "spec": "{}"}


def broken(store: Store, *types: str) -> None:
    """A transaction that writes events, each in a part of the one before, and then raises."""
    with store.database.transaction():
        store.events.write("r", types[0], {})
        if types[1:]:
            with pytest.raises(ZeroDivisionError):
                broken(store, *types[1:])
            with store.database.transaction():
                store.events.write("r", "a part that ended well", {})
        raise ZeroDivisionError


class DatabaseContract:
    """Transactions, locks, clock, wake-up and values."""

    def test_statements_of_a_transaction_happen_together(self, store: Store, another: Store) -> None:
        with pytest.raises(ZeroDivisionError):
            broken(store, "first")
        with store.database.transaction():
            store.events.write("r", "second", {})
            assert another.events.of_run("r") == [], "not before it is committed"
            store.events.write("r", "third", {})
        assert [event.type for event in another.events.of_run("r")] == ["second", "third"]

    def test_a_part_that_raises_is_undone_alone_at_any_depth(self, store: Store) -> None:
        with store.database.transaction():
            store.events.write("r", "kept", {})
            with pytest.raises(ZeroDivisionError):
                broken(store, "undone", "undone with it")
            with store.database.transaction():
                store.events.write("r", "kept too", {})
        assert [event.type for event in store.events.of_run("r")] == ["kept", "kept too"]

    def test_a_key_that_exists_is_a_conflict_and_the_transaction_goes_on(self, store: Store) -> None:
        run = submitted(store, 2)
        with store.database.transaction():
            with pytest.raises(Conflict), store.database.transaction():
                store.database.many("insert_task", task_values(run.id, range(4, 1, -1)))
            store.database.many("insert_task", task_values(run.id, range(3, 5)))
        assert [row["number"] for row in store.tasks.page(run.id)] == [1, 2, 3, 4]

    def test_a_snapshot_is_not_for_writing(self, store: Store) -> None:
        with pytest.raises(RuntimeError, match="inside a snapshot"), store.database.snapshot():
            store.events.note("r", "never", {})
        store.events.note("r", "afterwards", {})
        assert [event.type for event in store.events.of_run("r")] == ["afterwards"]

    def test_a_stream_gives_all_rows_in_order(self, store: Store) -> None:
        run = submitted(store, 1500)
        streamed = [row["key"] for row in store.database.stream("select_members", run_id=run.id)]
        assert sorted(streamed) == sorted(task.key for task in store.tasks.all(run.id))

    def test_a_lock_has_one_owner_until_it_is_given_up(self, store: Store, another: Store) -> None:
        mine, other = store.database, another.database
        assert mine.lock_owner("pool-a") is None
        assert mine.lock("pool-a", "one of us") is None
        assert mine.lock("pool-a", "the same once more") is None
        assert other.lock("pool-a", "the other") == "one of us"
        assert (mine.lock_owner("pool-a"), other.lock_owner("pool-a")) == ("one of us", "one of us")
        other.unlock("pool-a")
        assert other.lock_owner("pool-a") == "one of us", "only its owner gives it up"
        assert other.lock("pool-b", "the other") is None, "another name is another lock"
        mine.unlock("pool-a")
        assert mine.lock_owner("pool-a") is None
        assert other.lock("pool-a", "the other") is None

    def test_closing_gives_up_all_locks(self, store: Store, another: Store) -> None:
        for name in ("a", "b"):
            assert another.database.lock(name, "the other") is None
        another.close()
        another.close()
        assert [store.database.lock_owner(name) for name in ("a", "b")] == [None, None]

    def test_the_clock_is_the_same_for_all(self, store: Store, another: Store, clock: FakeClock) -> None:
        clock.advance(5)
        assert store.now() == another.now() == clock()
        store.events.note("r", "now", {})
        assert another.events.of_run("r")[0].at == clock()

    def test_only_unicode_is_text(self, store: Store) -> None:
        store.events.note("r", "a \U0001f642", {"b": "\x00é"})
        (event,) = store.events.of_run("r")
        assert (event.type, event.data) == ("a \U0001f642", {"b": "\x00é"})
        with pytest.raises(InputError, match="not Unicode"):
            store.runs.find("\udcff")
