"""The dialects of SQL: the same tables, and statements that each database takes."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest
from tests.support.postgres import Server

from evalfleet.store.database.postgres import dialect
from evalfleet.store.database.postgres.dialect import translate, translated
from evalfleet.store.database.sqlite import SqliteDatabase
from evalfleet.store.database.statements import migrations
from evalfleet.store.home import place
from evalfleet.store.open import open_store

OWN = {"named_lock", "session", "schema_version"}  # tables that only PostgreSQL needs


@pytest.mark.parametrize(
    ("sql", "text", "names"),
    [
        ("select :name, :name, :now", "select $1::text, $1::text, $2::double precision", ("name", "now")),
        ("select 1 from a indexed by b where c = :number", "select 1 from a  where c = $1::bigint", ("number",)),
        ("select 1 from a cross join b on a.x = b.x", "select 1 from a join b on a.x = b.x", ()),
        ("select 1 where x glob 'w.*' -- of :none", "select 1 where x like 'w.%'", ()),
        ("select 1 where x like :search", "select 1 where x ilike $1::text", ("search",)),
    ],
)
def test_what_sqlite_takes_becomes_what_postgresql_takes(sql: str, text: str, names: tuple[str, ...]) -> None:
    found = translate(sql)
    assert (found.text, found.names) == (text, names)


def test_values_get_the_type_that_is_declared_for_them() -> None:
    statement = translate("update x set a = :now, b = :forced, c = :reason, d = :samples")
    assert statement.writes
    given = {"now": 3, "forced": True, "reason": "a\0b", "samples": bytearray(b"s")}
    found = statement.values(given)
    assert found == [3.0, 1, "a\ufffdb", b"s"]
    assert [type(value) for value in found] == [float, int, str, bytes]


def test_both_have_the_same_tables_and_versions(postgres: Server, tmp_path: Path) -> None:
    assert migrations("sqlite")[-1].version == migrations(dialect.DIALECT)[-1].version
    store = open_store(tmp_path / "sqlite")
    assert isinstance(store.database, SqliteDatabase)
    query = "select t.name, c.name from sqlite_schema t join pragma_table_info(t.name) c where t.type = 'table'"
    wanted = {(table, column) for table, column in map(tuple, store.database.connection.execute(query))}
    wanted = {(table, column) for table, column in wanted if not table.startswith("sqlite_")}
    store.close()
    with postgres.home(tmp_path / "home") as home:
        open_store(home).close()
        with psycopg.connect(place.url_of(home) or "") as connection:
            found = connection.execute(
                "select table_name, column_name from information_schema.columns where table_schema = current_schema()"
            )
            columns = {(table, column) for table, column in found if table not in OWN}
    assert columns == wanted | {("run", "rowid")}


def test_postgresql_takes_every_statement(postgres: Server, tmp_path: Path) -> None:
    with postgres.home(tmp_path / "home") as home:
        open_store(home).close()
        refused: dict[str, str] = {}
        with psycopg.connect(place.url_of(home) or "", autocommit=True) as connection:
            for name, statement in translated().items():
                try:
                    connection.execute(f"prepare one as {statement.text}".encode())
                    connection.execute("deallocate one")
                except psycopg.Error as error:
                    refused[name] = str(error)
    assert refused == {}
