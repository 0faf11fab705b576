"""Brings the schema of a store in PostgreSQL up to date, all of it or nothing."""

from __future__ import annotations

import psycopg

from evalfleet.errors import StoreForeign, StoreTooNew
from evalfleet.store.database.postgres.database import PostgresDatabase
from evalfleet.store.database.postgres.dialect import DIALECT
from evalfleet.store.database.postgres.server import command
from evalfleet.store.database.statements import migrations

_VERSION = "create table if not exists schema_version (version bigint not null)"


def newest_version() -> int:
    return migrations(DIALECT)[-1].version


def schema_version(database: PostgresDatabase) -> int:
    """0: it is empty."""
    found = command(database.connection, "select to_regclass('schema_version') as known")
    if found["known"] is None:
        return 0
    found = command(database.connection, "select version from schema_version")
    return 0 if found is None else found["version"]


def refuse_newer(database: PostgresDatabase, version: int) -> None:
    if version > newest_version():
        raise StoreTooNew(
            f"the store {database.where} has schema {version}, this evalfleet knows up to {newest_version()}; upgrade evalfleet"
        )


def migrate(database: PostgresDatabase) -> None:
    """Apply what is missing. Raises StoreTooNew, StoreForeign."""
    if schema_version(database) == newest_version():
        return
    with database.transaction():
        database.wrote()
        version = schema_version(database)
        refuse_newer(database, version)
        try:
            command(database.connection, _VERSION)
            for migration in migrations(DIALECT):
                if migration.version > version:
                    command(database.connection, migration.script)
            command(
                database.connection,
                f"delete from schema_version; insert into schema_version values ({newest_version()})",
            )
        except (
            psycopg.errors.DuplicateTable,
            psycopg.errors.DuplicateFunction,
            psycopg.errors.UndefinedTable,
        ) as error:
            raise StoreForeign(
                f"the schema {database.schema} of {database.where} holds tables that this evalfleet did not make ({error}); it was left "
                "as it was. Use an empty one: ?options=-csearch_path%3DNAME"
            ) from error
