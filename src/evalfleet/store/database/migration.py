"""Brings the schema of an older home up to date, all of it or nothing.

The database as it was is kept beside the new one (`evalfleet.db.schema-3`), because an older evalfleet does not open a
newer schema. A released migration never changes, so a home whose tables are not those of a new one afterwards was made
by a version that this one does not come from: it is left as it was.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path

from evalfleet.errors import StoreForeign, StoreTooNew, StoreUnwritable
from evalfleet.store.database.file import FILE
from evalfleet.store.database.statements import Migration


def schema_version(connection: sqlite3.Connection) -> int:
    return connection.execute("pragma user_version").fetchone()[0]


def copy_of(home: Path, version: int) -> Path:
    """Where the database is kept as it was before it left that version."""
    return home / f"{FILE}.schema-{version}"


def migrate(connection: sqlite3.Connection, home: Path, known: Sequence[Migration]) -> None:
    """Apply what is missing. The caller holds the write lock and a transaction, and rolls back on an error.

    Raises StoreTooNew, StoreForeign, StoreUnwritable.
    """
    version = schema_version(connection)
    if version > len(known):
        raise too_new(home, version, len(known))
    if version == len(known):
        return
    try:
        for migration in known[version:]:
            _apply(connection, migration)
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_ERROR:
            raise
        raise _foreign(home, str(error)) from error
    missing = _missing(connection, known) if version else None
    if missing is None and connection.execute("pragma foreign_key_check").fetchone() is not None:
        missing = "rows refer to rows that are not there"
    if missing is not None:
        raise _foreign(home, missing)
    if version:
        _keep_copy(home, version)


def too_new(home: Path, version: int, known: int) -> StoreTooNew:
    return StoreTooNew(
        f"{home / FILE} has schema {version}, this evalfleet knows up to {known}; "
        "upgrade evalfleet, or use another home with --home DIR"
    )


def _foreign(home: Path, why: str) -> StoreForeign:
    return StoreForeign(
        f"{home / FILE} was made by an evalfleet that this one does not come from ({why}). It was left as it was; "
        "use the version that made it, or another home with --home DIR"
    )


def _apply(connection: sqlite3.Connection, migration: Migration) -> None:
    for statement in _split(migration.script):
        connection.execute(statement)
    connection.execute(f"pragma user_version = {migration.version}")


def _split(script: str) -> Iterator[str]:
    """Single statements of a script; `executescript` would commit the transaction around it."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
    if statement.strip():
        yield statement


def _missing(connection: sqlite3.Connection, known: Sequence[Migration]) -> str | None:
    """What a new home has and this one has not, in words."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as new:
        for migration in known:
            _apply(new, migration)
        wanted = _columns(new)
    found = _columns(connection)
    for table, columns in wanted.items():
        if table not in found:
            return f"there is no table {table}"
        if columns - found[table]:
            return f"table {table} lacks {min(columns - found[table])}"
    return None


def _columns(connection: sqlite3.Connection) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    query = (
        "select t.name, c.name from sqlite_schema t join pragma_table_info(t.name) c "
        "where t.type = 'table' and t.name not like 'sqlite_%'"
    )
    for table, column in connection.execute(query):
        found.setdefault(table, set()).add(column)
    return found


def _keep_copy(home: Path, version: int) -> None:
    """Copy what is committed, which is the database before this migration; the disk has it before the migration is."""
    kept = copy_of(home, version)
    partial = kept.with_name(kept.name + ".partial")
    try:
        partial.unlink(missing_ok=True)
        with (
            closing(sqlite3.connect(f"{(home / FILE).absolute().as_uri()}?mode=ro", uri=True)) as old,
            closing(sqlite3.connect(partial)) as new,
        ):
            old.backup(new)
            new.execute("pragma journal_mode = delete")
        os.chmod(partial, 0o600)
        with partial.open("rb") as file:
            os.fsync(file.fileno())
        partial.rename(kept)
    except (OSError, sqlite3.Error) as error:
        with suppress(OSError):
            partial.unlink()
        raise StoreUnwritable(
            f"cannot keep a copy of {home / FILE} before its schema is brought up to date: {error}; free some space"
        ) from error
