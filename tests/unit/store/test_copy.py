"""Copies between SQLite and PostgreSQL: all rows, or nothing."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from tests.support.postgres import Server
from tests.support.store import cases

from evalfleet.errors import EvalfleetError, Owned, StoreError
from evalfleet.model import Role
from evalfleet.operations.store_copy import copy_store
from evalfleet.store.database.file import FILE
from evalfleet.store.database.postgres.database import PostgresDatabase
from evalfleet.store.home import place
from evalfleet.store.open import open_reader, open_store
from evalfleet.store.reader import StoreReader
from evalfleet.store.tables import PostgresTables, Values


@pytest.fixture
def url(postgres: Server) -> Iterator[str]:
    with postgres.schema() as schema:
        yield postgres.url(schema)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with runs, in SQLite."""
    home = tmp_path / "home"
    with closing(open_store(home)) as store:
        run = cases.drive(store, 40)
        for number in range(1, 21):
            attempt = cases.claimed(store, run, number).attempt
            if number % 3:
                cases.finished(store, run, cases.with_verdict(attempt))
            else:
                cases.finished(store, run, cases.with_failure(attempt))
        store.runs.leave(run)
        cases.submit(store, ["a \U0001f642", "\x00 of JSON"])
        store.pools.create("p", "ssh", {"hosts": []})
        store.users.add("ada", Role.MEMBER)
        store.tokens.add("t", Role.READER, "digest", user="ada")
        store.audit.add("ada", "run.submit", run.id)
        store.events.note("r", "odd", {"text": "\x00 \U0001f642", "number": 0.1 + 0.2})
    return home


def told(home: Path) -> list[object]:
    """What a home remembers, as a reader sees it."""
    store = open_reader(home)
    assert store is not None
    with closing(store):
        return [
            _all(store),
            store.pools.all(),
            store.tokens.all(),
            store.users.all(),
            store.audit.page(),
            store.home.identity().id,
        ]


def _all(store: StoreReader) -> list[object]:
    runs = store.runs.newest()
    parts = [(run, list(store.tasks.all(run.id)), store.attempts.all(run.id)) for run in runs]
    return [*parts, *store.runs.page(), *store.events.all(0, 10_000)]


def test_there_and_back_nothing_is_lost(home: Path, url: str) -> None:
    before = told(home)
    there = copy_store("home", url, home)
    assert there.rows["task"] == 42
    assert there.rows["attempt"] == 20
    assert (place.url_of(home), (home / FILE).exists()) == (url, False)
    assert there.kept == str(home / f"{FILE}.copied")
    assert told(home) == before
    with closing(open_store(home)) as store:
        assert isinstance(store.database, PostgresDatabase)
        number = store.events.last_number()
        store.events.note("r", "after the copy", {})
        assert store.events.last_number() == number + 1
        cases.submit(store)
    during = told(home)
    back = copy_store(url, "home", home)
    assert back.rows["run"] == 3
    assert place.url_of(home) is None
    assert told(home) == during
    with closing(open_store(home)) as store:
        assert store.events.last_number() > number + 1
        store.events.note("r", "after the way back", {})
    assert sorted(path.name for path in home.iterdir() if path.name.startswith(".copy")) == []


def _owned(home: Path, url: str) -> Callable[[], None]:
    store = open_store(home)
    store.runs.take(store.runs.newest()[0].id, "somebody else")
    return store.close


def _filled(home: Path, url: str) -> Callable[[], None]:
    other = home.parent / "other"
    other.mkdir()
    place.point(other, url)
    with closing(open_store(other)) as store:
        cases.submit(store)
    return lambda: None


def _older(home: Path, url: str) -> Callable[[], None]:
    with closing(sqlite3.connect(home / FILE)) as connection:
        (version,) = connection.execute("pragma user_version").fetchone()
        connection.execute(f"pragma user_version = {version - 1}")
    return lambda: None


@pytest.mark.parametrize(
    ("prepare", "message"),
    [(_owned, "driven by somebody else"), (_filled, "not empty"), (_older, "copies schema")],
)
def test_what_is_refused_changes_nothing(
    home: Path, url: str, prepare: Callable[[Path, str], Callable[[], None]], message: str
) -> None:
    end = prepare(home, url)
    with pytest.raises(EvalfleetError, match=message):
        copy_store(str(home), url, home)
    end()
    assert place.pointed(home) is None
    with psycopg.connect(url) as connection:
        (known,) = connection.execute("select to_regclass('task')").fetchone() or (None,)
        count = connection.execute("select count(*) from task").fetchone() if known else (0,)
    assert count == ((1,) if prepare is _filled else (0,))


@pytest.mark.parametrize("change", ["lost", "other"])
def test_a_copy_that_differs_is_not_used(home: Path, url: str, monkeypatch: pytest.MonkeyPatch, change: str) -> None:
    write = PostgresTables.write

    def wrong(self: PostgresTables, table: str, columns: Sequence[str], rows: Iterable[Values]) -> None:
        written = list(rows)
        if table == "event":
            place = columns.index("data")
            last = written.pop()
            if change == "other":
                written.append((*last[:place], "{}", *last[place + 1 :]))
        write(self, table, columns, written)

    before = told(home)
    monkeypatch.setattr(PostgresTables, "write", wrong)
    with pytest.raises(StoreError, match="table event differs"):
        copy_store("home", url, home)
    monkeypatch.undo()
    assert told(home) == before
    assert copy_store("home", url, home).rows["event"] > 0


def test_two_folders_and_a_home_that_is_not_there_are_refused(home: Path, url: str, tmp_path: Path) -> None:
    for source, target in ((str(home), str(tmp_path / "x")), (str(tmp_path / "none"), url)):
        with pytest.raises(EvalfleetError):
            copy_store(source, target, home)
    with pytest.raises(EvalfleetError, match="has a store already"):
        copy_store(url, str(home), home)


def test_a_running_server_is_refused(home: Path, url: str) -> None:
    with closing(open_store(home)) as store:
        assert store.daemon.claim_alerts("t", 60)
    with pytest.raises(Owned, match="serves this home"):
        copy_store("home", url, home)
