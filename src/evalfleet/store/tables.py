"""The rows of a database, table by table, for a copy into another kind of database."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol

from evalfleet.store.database.base import Database

if TYPE_CHECKING:
    from evalfleet.store.database.postgres.database import PostgresDatabase
    from evalfleet.store.database.sqlite import SqliteDatabase

Values = tuple[Any, ...]

_PAGE = 1000
# Rows refer to rows of tables before theirs.
_FIRST = ("run", "pool", "task", "attempt", "user_account")
_OWN = ("schema_version", "named_lock", "session")  # what only PostgreSQL has


class Tables(Protocol):
    """All rows of one database, read or written in one transaction."""

    @property
    def database(self) -> Database: ...

    def version(self) -> int:
        """Of the schema; 0: it has no tables yet."""
        ...

    def columns(self) -> dict[str, tuple[str, ...]]:
        """The columns of each table, by the names and in the order that all databases share."""
        ...

    def rows(self, table: str, columns: Sequence[str]) -> Iterator[Values]: ...

    def write(self, table: str, columns: Sequence[str], rows: Iterable[Values]) -> None: ...

    def clear(self, table: str) -> None: ...

    def number_on(self) -> None:
        """Let the numbers of new rows follow those that were written."""
        ...

    def transaction(self) -> AbstractContextManager[None]: ...


class SqliteTables:
    def __init__(self, database: SqliteDatabase) -> None:
        self.database = database
        self._connection = database.connection

    def version(self) -> int:
        return self._connection.execute("pragma user_version").fetchone()[0]

    def columns(self) -> dict[str, tuple[str, ...]]:
        query = (
            "select t.name, c.name from sqlite_schema t join pragma_table_info(t.name) c "
            "where t.type = 'table' and t.name not like 'sqlite_%'"
        )
        found = ordered(map(tuple, self._connection.execute(query)))
        return found | {"run": (*found["run"], "rowid")} if found else found

    def rows(self, table: str, columns: Sequence[str]) -> Iterator[Values]:
        cursor = self._connection.execute(f"select {_list(columns)} from {table}")
        while page := cursor.fetchmany(_PAGE):
            yield from map(tuple, page)

    def write(self, table: str, columns: Sequence[str], rows: Iterable[Values]) -> None:
        places = ", ".join("?" * len(columns))
        self._connection.executemany(f"insert into {table} ({_list(columns)}) values ({places})", rows)

    def clear(self, table: str) -> None:
        self._connection.execute(f"delete from {table}")

    def number_on(self) -> None:
        """SQLite does so by itself."""

    def transaction(self) -> AbstractContextManager[None]:
        return self.database.transaction()


class PostgresTables:
    def __init__(self, database: PostgresDatabase) -> None:
        from evalfleet.store.database.postgres.dialect import text_of

        self.database = database
        self._text_of = text_of

    def version(self) -> int:
        from evalfleet.store.database.postgres.schema import schema_version

        return schema_version(self.database)

    def columns(self) -> dict[str, tuple[str, ...]]:
        found = self.database.connection.execute(
            "select c.table_name, c.column_name from information_schema.columns c join information_schema.tables t "
            "on t.table_schema = c.table_schema and t.table_name = c.table_name "
            "where c.table_schema = current_schema() and t.table_type = 'BASE TABLE'"
        )
        pairs = ((row["table_name"], row["column_name"]) for row in found)
        return ordered(pair for pair in pairs if pair[0] not in _OWN)

    def rows(self, table: str, columns: Sequence[str]) -> Iterator[Values]:
        with self.database.connection.cursor("copy_of_a_table") as cursor:
            cursor.execute(f"select {_list(columns)} from {table}".encode())
            while page := cursor.fetchmany(_PAGE):
                for row in page:
                    yield tuple(row[name] for name in columns)

    def write(self, table: str, columns: Sequence[str], rows: Iterable[Values]) -> None:
        with (
            self.database.connection.cursor() as cursor,
            cursor.copy(f"copy {table} ({_list(columns)}) from stdin".encode()) as copy,
        ):
            for row in rows:
                copy.write_row([self._text_of(value) if isinstance(value, str) else value for value in row])

    def clear(self, table: str) -> None:
        self.database.connection.execute(f"delete from {table}".encode())

    def number_on(self) -> None:
        found = self.database.connection.execute(
            "select table_name, column_name from information_schema.columns "
            "where table_schema = current_schema() and is_identity = 'YES'"
        )
        for row in found.fetchall():
            table, column = row["table_name"], row["column_name"]
            sequence = f"pg_get_serial_sequence('{table}', '{column}')"
            query = f"select setval({sequence}, (select coalesce(max({column}), 0) + 1 from {table}), false)"
            self.database.connection.execute(query.encode())

    @contextmanager
    def transaction(self) -> Generator[None]:
        with self.database.transaction():
            self.database.wrote()
            # It may be idle for long while the other database is read.
            self.database.connection.execute("set local idle_in_transaction_session_timeout = 0")
            yield


def ordered(pairs: Iterable[Sequence[str]]) -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for table, column in pairs:
        found.setdefault(table, []).append(column)
    rest = sorted(found.keys() - set(_FIRST))
    return {table: tuple(sorted(found[table])) for table in chain(_FIRST, rest) if table in found}


def _list(columns: Sequence[str]) -> str:
    return ", ".join(f'"{name}"' if name == "only" else name for name in columns)
