"""A consistent copy of what a home remembers, as an SQLite file, whatever kind of store it has, while others write."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

from evalfleet.errors import StoreCorrupt, StoreUnwritable
from evalfleet.store.copy import copy_tables
from evalfleet.store.database.clock import SteadyClock
from evalfleet.store.database.file import FILE
from evalfleet.store.database.sqlite import SqliteDatabase
from evalfleet.store.home import place
from evalfleet.store.open import migrate_file
from evalfleet.store.tables import SqliteTables


def copy_database(home: Path, target: Path) -> dict[str, int]:
    """Copy the store into the new file `target`, check the copy, and return the number of rows of each table.

    Raises StoreCorrupt: the copy is not whole. StoreUnwritable, StoreError.
    """
    url = place.url_of(home)
    folder = target.with_name(f"{target.name}.making")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, mode=0o700)
    try:
        rows = _of_file(home, folder / FILE) if url is None else _of_server(url, folder)
        found = check_database(folder / FILE)
        if found != rows:
            raise StoreCorrupt(f"the copy of {home / FILE} has other rows than the store; the backup was not made")
        (folder / FILE).chmod(0o600)
        (folder / FILE).rename(target)
    except sqlite3.Error as error:
        raise StoreUnwritable(f"cannot copy the store of {home} to {target}: {error}") from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return rows


def check_database(file: Path) -> dict[str, int]:
    """The number of rows of each table of an SQLite file that is whole. Raises StoreCorrupt."""
    try:
        with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            said = connection.execute("pragma integrity_check").fetchone()[0]
            if said != "ok":
                raise StoreCorrupt(f"{file} is damaged: {said}")
            return _counts(connection)
    except sqlite3.DatabaseError as error:
        raise StoreCorrupt(f"{file} is damaged: {error}") from error


def _of_file(home: Path, target: Path) -> dict[str, int]:
    """By SQLite's own backup, in one read transaction: writers go on."""
    with (
        closing(
            sqlite3.connect(f"{(home / FILE).absolute().as_uri()}?mode=ro", uri=True, timeout=30, isolation_level=None)
        ) as old,
        closing(sqlite3.connect(target)) as new,
    ):
        old.execute("begin")
        rows = _counts(old)
        old.backup(new)
        new.execute("pragma journal_mode = delete")
        return rows


def _of_server(url: str, folder: Path) -> dict[str, int]:
    from evalfleet.store.database.postgres.database import PostgresDatabase
    from evalfleet.store.tables import PostgresTables

    with (
        closing(PostgresDatabase(url, readonly=True)) as source,
        closing(SqliteDatabase(folder, readonly=False, clock=SteadyClock())) as target,
    ):
        migrate_file(target, folder)
        tables = SqliteTables(target)
        with source.snapshot(), tables.transaction():
            rows = copy_tables(PostgresTables(source), tables)
        target.connection.execute("pragma journal_mode = delete")
        return rows


def _counts(connection: sqlite3.Connection) -> dict[str, int]:
    names = connection.execute(
        "select name from sqlite_schema where type = 'table' and name not like 'sqlite_%' order by name"
    )
    return {name: connection.execute(f'select count(*) from "{name}"').fetchone()[0] for (name,) in names.fetchall()}
