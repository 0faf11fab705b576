"""Homes as they are met in the wild: new, old, newer, broken; each gives a store or one clear error."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from tests.support.store import cases

from evalfleet.errors import StoreBusy, StoreCorrupt, StoreError, StoreTooNew, StoreUnwritable
from evalfleet.store.database import sqlite, statements
from evalfleet.store.database.statements import Migration
from evalfleet.store.open import open_reader, open_store
from evalfleet.store.reader import StoreReader
from evalfleet.store.store import Store

FILE = "evalfleet.db"


def filled(home: Path, runs: int = 3) -> Path:
    store = open_store(home)
    for _ in range(runs):
        cases.submit(store, 50)
    store.close()
    return home / FILE


def error_of(home: Path, opener: Callable[[Path], object]) -> str:
    """The one clear error of opening the home."""
    with pytest.raises(StoreError) as caught:
        opener(home)
    assert "\n" not in str(caught.value)
    assert not isinstance(caught.value.__cause__, StoreError)
    return f"{type(caught.value).__name__}: {caught.value}"


both = pytest.mark.parametrize("opener", [open_store, open_reader])


@pytest.mark.parametrize(
    "name",
    ["plain", "with space", "100%25", "a?b=c", "a#b", "ünïcödé 🙂", "file:x", "new\nline", "a&mode=memory", "'\""],
)
def test_any_name_is_a_home(tmp_path: Path, name: str) -> None:
    home = tmp_path / name / "deep"
    assert open_reader(home) is None
    assert not home.exists()
    filled(home, 1)
    assert (home / FILE).is_file()
    assert sorted(path.name for path in home.iterdir()) == [FILE, "locks", "write.lock"]
    reader = open_reader(home)
    assert reader is not None
    assert len(reader.runs.newest()) == 1
    reader.close()


def test_a_name_that_is_not_utf8_is_a_home(tmp_path: Path) -> None:
    home = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff\xfe"))
    filled(home, 1)
    assert (home / FILE).is_file()


def test_a_relative_home_is_a_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    filled(Path("here"), 1)
    assert (tmp_path / "here" / FILE).is_file()


# Homes that cannot be


def test_a_home_below_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    message = error_of(tmp_path / "file" / "home", open_store)
    assert message.startswith("StoreUnwritable")
    assert "file/home" in message
    assert "--home" in message
    assert open_reader(tmp_path / "file" / "home") is None


@both
def test_a_home_with_nul(opener: Callable[[Path], object]) -> None:
    if opener is open_reader:
        with pytest.raises((StoreUnwritable, AssertionError)):
            assert opener(Path("/tmp/a\0b")) is not None
    else:
        assert "StoreUnwritable" in error_of(Path("/tmp/a\0b"), opener)


def test_a_home_in_proc() -> None:
    message = error_of(Path("/proc/evalfleet"), open_store)
    assert message.startswith("StoreUnwritable")
    assert "/proc/evalfleet" in message


@both
def test_a_name_too_long(tmp_path: Path, opener: Callable[[Path], object]) -> None:
    message = error_of(tmp_path / ("x" * 300), opener)
    assert message.startswith("StoreUnwritable")
    assert "--home" in message


@both
def test_a_folder_where_the_database_should_be(tmp_path: Path, opener: Callable[[Path], object]) -> None:
    (tmp_path / FILE).mkdir()
    message = error_of(tmp_path, opener)
    assert message.startswith("StoreUnwritable")
    assert FILE in message


def test_a_folder_where_a_lock_should_be(tmp_path: Path) -> None:
    (tmp_path / "write.lock").mkdir()
    assert "write.lock" in error_of(tmp_path, open_store)


def test_a_file_where_the_locks_should_be(tmp_path: Path) -> None:
    (tmp_path / "locks").write_text("")
    assert error_of(tmp_path, open_store).startswith("StoreUnwritable")


# Broken databases


@both
@pytest.mark.parametrize("part", [1, 15, 16, 50, 99, 100, 4096, 0.25, 0.5, 0.9, -1])
def test_a_database_that_was_cut_off(tmp_path: Path, part: float, opener: Callable[[Path], object]) -> None:
    path = filled(tmp_path)
    size = path.stat().st_size
    os.truncate(path, int(size * part) if 0 < part < 1 else int(size + part) if part < 0 else int(part))
    message = error_of(tmp_path, opener)
    assert message.startswith("StoreCorrupt")
    assert str(path) in message
    assert "backup" in message


@both
def test_an_empty_database_beside_runs(tmp_path: Path, opener: Callable[[Path], object]) -> None:
    path = filled(tmp_path)
    (tmp_path / "runs" / "abc").mkdir(parents=True)
    os.truncate(path, 0)
    message = error_of(tmp_path, opener)
    assert message.startswith("StoreCorrupt")
    assert "is empty" in message


def test_an_empty_database_alone_is_a_new_one(tmp_path: Path) -> None:
    (tmp_path / FILE).touch()
    reader = open_reader(tmp_path)
    assert reader is not None
    assert reader.runs.newest() == []
    reader.close()


@both
@pytest.mark.parametrize("garbage", [b"hello", b"x" * 5000, os.urandom(8192), b"SQLite format 3\0" + b"\xff" * 5000])
def test_garbage(tmp_path: Path, garbage: bytes, opener: Callable[[Path], object]) -> None:
    (tmp_path / FILE).write_bytes(garbage)
    message = error_of(tmp_path, opener)
    assert message.startswith("StoreCorrupt")
    assert FILE in message
    assert (tmp_path / FILE).read_bytes() == garbage


def test_damage_that_is_met_later_is_named_as_well(tmp_path: Path) -> None:
    path = filled(tmp_path)
    store = open_store(tmp_path)
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (path.stat().st_size - 4096))
    with pytest.raises(StoreCorrupt, match="is damaged"):
        cases.submit(store, 10)
    store.close()


def test_a_checkpoint_that_was_killed_half_way_is_no_damage(tmp_path: Path) -> None:
    """The first page may name more pages than the file has, while the log has the rest."""
    store = open_store(tmp_path / "a")
    cases.submit(store, 500)
    copy = tmp_path / "b"
    copy.mkdir()
    database, log = (tmp_path / "a" / FILE).read_bytes(), (tmp_path / "a" / f"{FILE}-wal").read_bytes()
    store.close()
    whole = (tmp_path / "a" / FILE).read_bytes()
    assert len(database) < len(whole)
    (copy / FILE).write_bytes(whole[:4096] + database[4096:])
    (copy / f"{FILE}-wal").write_bytes(log)
    reader = open_reader(copy)
    assert reader is not None
    assert len(list(reader.tasks.all(reader.runs.newest()[0].id))) == 500
    reader.close()


def test_a_full_disk_is_named_and_leaves_the_store_usable(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    run = cases.submit(store)
    database = store.database
    assert isinstance(database, sqlite.SqliteDatabase)
    database.connection.execute("pragma max_page_count = 40")
    with pytest.raises(StoreUnwritable, match=r"full.*free some space"):
        cases.submit(store, 5000)
    assert [found.id for found in store.runs.newest()] == [run.id]
    database.connection.execute("pragma max_page_count = 100000")
    assert cases.submit(store, 5000).id
    store.close()


def test_another_program_in_the_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(tmp_path)
    monkeypatch.setattr(sqlite, "BUSY_S", 0.05)
    store = open_store(tmp_path)
    foreign = sqlite3.connect(tmp_path / FILE, isolation_level=None)
    foreign.execute("begin immediate")
    with pytest.raises(StoreBusy, match="locked by another program"):
        cases.submit(store)
    foreign.close()
    assert cases.submit(store).id
    store.close()


def test_text_that_is_not_unicode_finds_nothing(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    run = cases.submit(store)
    for ask in (lambda: store.runs.find("\udcff"), lambda: store.tasks.get(run.id, "\udcff")):
        with pytest.raises(Exception, match="not Unicode") as caught:
            ask()
        assert type(caught.value).__module__ == "evalfleet.errors"
    store.close()


def test_closing_twice_is_no_error(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.close()
    store.close()


def test_a_write_inside_a_snapshot_is_a_mistake(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    run = cases.submit(store)
    with pytest.raises(RuntimeError, match="snapshot"), store.snapshot():
        store.events.note(run.id, "test.noted", {})
    store.events.note(run.id, "test.noted", {})
    store.close()


# Versions


def _extended(monkeypatch: pytest.MonkeyPatch, *scripts: str) -> None:
    known = statements.migrations(sqlite.DIALECT)
    more = [Migration(len(known) + i, f"more_{i}", script) for i, script in enumerate(scripts, 1)]
    monkeypatch.setattr("evalfleet.store.open.migrations", lambda dialect: (*known, *more))


def _version(home: Path) -> tuple[int, set[str]]:
    connection = sqlite3.connect(home / FILE)
    try:
        tables = {row[0] for row in connection.execute("select name from sqlite_schema where type = 'table'")}
        return connection.execute("pragma user_version").fetchone()[0], tables
    finally:
        connection.close()


@both
def test_a_database_of_a_newer_version(tmp_path: Path, opener: Callable[[Path], object]) -> None:
    path = filled(tmp_path)
    connection = sqlite3.connect(path)
    connection.execute("pragma user_version = 99")
    connection.close()
    with pytest.raises(StoreTooNew, match="has schema 99, this evalfleet knows up to") as caught:
        opener(tmp_path)
    assert str(path) in str(caught.value)
    assert "upgrade" in str(caught.value)
    assert _version(tmp_path)[0] == 99


@pytest.mark.parametrize("opener", [open_store, open_reader])
def test_an_older_database_is_brought_up_to_date(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opener: Callable[[Path], object]
) -> None:
    filled(tmp_path)
    before = _version(tmp_path)[0]
    _extended(
        monkeypatch,
        "create table extra (a);\n-- a comment; with a semicolon\ninsert into extra values (1);",
        "drop table extra",
    )
    opened = opener(tmp_path)
    assert isinstance(opened, StoreReader)
    assert len(opened.runs.newest()) == 3
    opened.close()
    version, tables = _version(tmp_path)
    assert version == before + 2
    assert "extra" not in tables
    kept = tmp_path / f"{FILE}.schema-{before}"
    assert kept.stat().st_mode & 0o777 == 0o600
    with closing(sqlite3.connect(kept)) as copy:
        assert copy.execute("pragma user_version").fetchone()[0] == before
        assert copy.execute("select count(*) from run").fetchone()[0] == 3


def test_a_home_of_which_no_copy_can_be_kept_stays_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(tmp_path)
    before = _version(tmp_path)
    (tmp_path / f"{FILE}.schema-{before[0]}.partial").mkdir()
    with monkeypatch.context() as patch:
        _extended(patch, "create table extra (a);")
        message = error_of(tmp_path, open_store)
    assert message.startswith("StoreUnwritable: cannot keep a copy of")
    assert _version(tmp_path) == before


def test_a_migration_that_fails_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(tmp_path)
    before = _version(tmp_path)
    with monkeypatch.context() as patch:
        _extended(patch, "create table extra (a);", "create table more (a);\ncreate table run (a);")
        message = error_of(tmp_path, open_store)
        assert message.startswith("StoreForeign")
        assert "run" in message
    assert _version(tmp_path) == before
    assert not list(tmp_path.glob(f"{FILE}.schema-*"))
    store = open_store(tmp_path)
    assert len(store.runs.newest()) == 3
    store.close()


def test_migrations_are_numbered_without_gaps() -> None:
    found = statements.migrations(sqlite.DIALECT)
    assert [migration.version for migration in found] == list(range(1, len(found) + 1))


def test_a_store_is_not_closed_under_a_call_that_has_begun(home: Path):
    """Whoever is interrupted closes it while the thread of its last call still works."""
    store = open_store(home)
    begun, go_on = threading.Event(), threading.Event()
    failed: list[BaseException] = []

    def work() -> None:
        try:
            with store.batch():
                store.events.note("r1", "attempt.progressed", {"step": 1})
                begun.set()
                go_on.wait(30)
                store.events.note("r1", "attempt.progressed", {"step": 2})
        except BaseException as error:
            failed.append(error)

    worker, closer = threading.Thread(target=work), threading.Thread(target=store.close)
    worker.start()
    assert begun.wait(30)
    closer.start()
    closer.join(0.2)
    go_on.set()
    worker.join(30)
    closer.join(30)
    assert failed == []
    with closing(open_store(home)) as again:
        assert [event.data["step"] for event in again.events.of_run("r1")] == [1, 2]


@pytest.mark.parametrize("spoiled", [b'"attempts":\xff', b'"attempts":!'], ids=["text", "JSON"])
def test_a_record_that_something_else_wrote_over_is_damage_and_no_internal_error(tmp_path: Path, spoiled: bytes):
    store = open_store(tmp_path)
    cases.submit(store, 3)
    store.close()
    path = tmp_path / FILE
    content = path.read_bytes()
    assert b'"attempts":3' in content
    path.write_bytes(content.replace(b'"attempts":3', spoiled))
    reader = open_reader(tmp_path)
    assert reader is not None
    with pytest.raises(StoreCorrupt, match="is damaged"):
        reader.runs.newest()
    reader.close()


@both
def test_a_schema_that_is_no_text_is_damage(tmp_path: Path, opener: Callable[[Path], Store]):
    open_store(tmp_path).close()
    path = tmp_path / FILE
    content = path.read_bytes()
    assert b"CREATE INDEX run_created" in content or b"create index run_created" in content
    spoiled = content.replace(b" INDEX run_created", b" \xffNDEX run_created").replace(
        b" index run_created", b" \xffndex run_created"
    )
    path.write_bytes(spoiled)
    with pytest.raises(StoreCorrupt, match="is damaged"):
        opener(tmp_path).runs.newest()
