"""What goes wrong between a store and its PostgreSQL server: nothing is lost, nothing happens twice, and one owner is left."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from tests.support.postgres import Server
from tests.support.store import cases

from evalfleet.cli.home.shared.doctor_checks import check_database
from evalfleet.errors import (
    InputError,
    StoreBusy,
    StoreCut,
    StoreError,
    StoreFenced,
    StoreRestored,
    StoreTooNew,
    StoreUnwritable,
)
from evalfleet.store.database.postgres import database as database_module
from evalfleet.store.database.postgres.server import Connection
from evalfleet.store.home import place
from evalfleet.store.open import open_reader, open_store
from evalfleet.store.store import Store


@pytest.fixture
def home(postgres: Server, tmp_path: Path) -> Iterator[Path]:
    with postgres.home(tmp_path / "home") as home:
        yield home


@pytest.fixture
def store(home: Path) -> Iterator[Store]:
    with closing(open_store(home)) as store:
        yield store


def types(store: Store) -> list[str]:
    return [event.type for event in store.events.of_run("r")]


def test_a_cut_connection_is_made_anew_and_keeps_its_locks(postgres: Server, home: Path, store: Store) -> None:
    run = cases.drive(store, 2)
    assert postgres.cut() == 1
    cases.claimed(store, run, 1)
    assert store.changed(), "what others did meanwhile was not heard"
    with closing(open_store(home)) as another:
        assert another.runs.driver(run.id) == run.driver
    assert postgres.cut() == 1
    assert store.runs.get(run.id).epoch == run.epoch


def undone(store: Store, first: Callable[[], object] = lambda: None) -> None:
    """A part that fails, in a transaction that goes on."""

    def part() -> None:
        with store.batch():
            first()
            store.events.note("r", "undone", {})
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        part()


def test_a_transaction_that_is_cut_is_done_again(postgres: Server, store: Store) -> None:
    with store.batch():
        store.events.note("r", "first", {})
        undone(store)
        with store.batch():
            store.events.note("r", "second", {})
            assert postgres.cut() == 1
            store.events.note("r", "third", {})
            undone(store, postgres.cut)
        assert types(store) == ["first", "second", "third"]
        assert postgres.cut() == 1
    assert types(store) == ["first", "second", "third"]


def test_a_transaction_that_is_cut_is_undone_where_another_changed_the_same(
    postgres: Server, home: Path, store: Store
) -> None:
    def meanwhile() -> None:
        with store.batch():
            assert types(store) == []
            store.events.note("r", "mine", {})
            postgres.cut()
            with closing(open_store(home)) as another:
                another.events.note("r", "another's", {})
            store.events.note("r", "mine too", {})

    with pytest.raises(StoreCut, match="nothing was changed by this one"):
        meanwhile()
    assert types(store) == ["another's"]


@pytest.mark.parametrize("happened", [True, False])
def test_a_commit_whose_answer_is_cut_is_looked_up(
    postgres: Server, store: Store, monkeypatch: pytest.MonkeyPatch, happened: bool
) -> None:
    """A commit may be cut on its way to the server, or the answer on its way back."""
    command = database_module.command

    def cut(connection: Connection, text: str) -> object:
        if not text.endswith("commit"):
            return command(connection, text)
        monkeypatch.undo()
        if happened:
            command(connection, text)
        postgres.cut()
        return command(connection, "select 1")

    store.events.note("r", "first", {})
    monkeypatch.setattr(database_module, "command", cut)
    store.events.note("r", "second", {})
    store.events.note("r", "third", {})
    assert types(store) == ["first", "second", "third"]


def test_a_snapshot_that_is_cut_goes_on_where_nothing_changed(postgres: Server, home: Path, store: Store) -> None:
    store.events.note("r", "first", {})

    def changed() -> None:
        with store.snapshot():
            assert types(store) == ["first"]
            postgres.cut()
            with closing(open_store(home)) as another:
                another.events.note("r", "second", {})
            store.events.last_number()

    with store.snapshot():
        assert types(store) == ["first"]
        postgres.cut()
        assert store.events.last_number() == 1
    with pytest.raises(StoreBusy, match="was cut"):
        changed()
    assert types(store) == ["first", "second"]


def test_an_owner_that_was_replaced_while_it_was_cut_is_fenced(postgres: Server, home: Path, store: Store) -> None:
    run = cases.drive(store, 2)
    postgres.cut()
    with closing(open_store(home)) as another:
        taken = another.runs.take(run.id, "the other")
        for _ in range(2):
            with pytest.raises(StoreFenced, match="took over"):
                cases.claimed(store, run, 1)
        assert taken.epoch == run.epoch + 1
        cases.claimed(another, another.runs.begin(taken) or taken, 1)
        another.runs.leave(taken)
    with pytest.raises(StoreFenced):  # although the lock is free again
        store.runs.get(run.id)


def test_a_server_that_crashes_and_comes_back_has_all_that_was_committed(postgres: Server, store: Store) -> None:
    run = cases.drive(store, 3)
    cases.claimed(store, run, 1)
    postgres.stop()
    postgres.start()
    cases.claimed(store, run, 2)
    assert [attempt.task_number for attempt in store.attempts.all(run.id)] == [1, 2]
    assert store.runs.driver(run.id) == run.driver


def test_a_server_that_was_restored_from_an_older_backup_is_refused(postgres: Server, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    postgres.admin("create database live")
    place.point(home, postgres.url("public", "live"))
    store = open_store(home)
    store.events.note("r", "first", {})
    postgres.cut()
    postgres.admin("create database backup template live")
    store.events.note("r", "second", {})
    store.close()
    store = open_store(home)
    store.events.note("r", "third", {})
    postgres.admin("drop database live with (force)", "alter database backup rename to live")
    try:
        with pytest.raises(StoreRestored, match="restored from a backup"):
            store.events.note("r", "never", {})
        for opener in (open_store, open_reader):
            with pytest.raises(StoreRestored, match="event 2 is not there"):
                opener(home)
        place.mark_file(home).unlink()
        with closing(open_store(home)) as again:
            assert types(again) == ["first"]
    finally:
        store.close()
        postgres.admin("drop database live with (force)")


def test_a_server_that_is_not_there_is_named_without_its_password(tmp_path: Path) -> None:
    place.point(tmp_path, f"postgresql://me@/runs?host={tmp_path}")
    with pytest.raises(StoreUnwritable, match="check that the server runs"):
        open_store(tmp_path)
    (tmp_path / place.POINTER).unlink()
    place.point(tmp_path, f"postgresql://me:verysecret@/runs?host={tmp_path}")
    with pytest.raises(InputError, match="PGPASSWORD") as caught:
        open_store(tmp_path)
    assert "verysecret" not in str(caught.value)


def test_a_newer_schema_and_tables_of_others_are_left_alone(postgres: Server, tmp_path: Path) -> None:
    with postgres.home(tmp_path / "a") as home:
        open_store(home).close()
        url = place.url_of(home) or ""
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("update schema_version set version = version + 1")
        for opener in (open_store, open_reader):
            with pytest.raises(StoreTooNew, match="upgrade evalfleet"):
                opener(home)
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("update schema_version set version = version - 1")
    postgres.admin("create schema others", "create table others.run (x int)")
    place.point(tmp_path, postgres.url("others"))
    with pytest.raises(StoreError, match="tables that this evalfleet did not make"):
        open_store(tmp_path)
    postgres.admin("select x from others.run", "drop schema others cascade")


def test_doctor_says_where_the_database_is(home: Path) -> None:
    assert check_database(home, None).message == f"on a server: {place.url_of(home)}"
