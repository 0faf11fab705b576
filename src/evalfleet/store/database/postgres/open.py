"""Opening a store on a PostgreSQL server for a home."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from evalfleet.errors import NotJoined
from evalfleet.store.database.postgres.database import Clock, PostgresDatabase
from evalfleet.store.database.postgres.schema import migrate, newest_version, refuse_newer, schema_version
from evalfleet.store.database.postgres.server import clear_error, refuse_password, unreachable
from evalfleet.store.home import identity, place


def open_database(home: Path, url: str, clock: Clock | None, *, copies: bool) -> PostgresDatabase:
    """Open for writing, and bring the schema up to date. Raises StoreError, InputError, CopiedHome."""
    refuse_password(url)
    database = PostgresDatabase(url, readonly=False, clock=clock, home=home)
    with closed_on_error(database, url):
        migrate(database)
        database.check_mark()
        if place.pointed(home) is None:
            _refuse_new_folder(database, home)
        place.point(home, url)
        identity.settle(database, home, copies=copies)
    return database


def open_for_reading(home: Path, url: str, clock: Clock | None) -> PostgresDatabase:
    """Open for reading. Raises StoreError, InputError."""
    database = PostgresDatabase(url, readonly=True, clock=clock, home=home)
    with closed_on_error(database, url):
        version = schema_version(database)
        refuse_newer(database, version)
        if version != newest_version():
            open_database(home, url, clock, copies=True).close()
        database.check_mark()
        words = identity.copy_words(database, home)
        if words is not None:
            identity.seen[home] = words
    return database


def _refuse_new_folder(database: PostgresDatabase, home: Path) -> None:
    """Raise NotJoined where the store is that of a home that lies elsewhere."""
    known = identity.read(database)
    if known is not None:
        raise NotJoined(
            f"the store {database.where} is that of the home {known.facts.path}; `evalfleet store join` lets {home} use it, too. "
            "Nothing was changed"
        )


@contextmanager
def closed_on_error(database: PostgresDatabase, url: str) -> Generator[None]:
    try:
        yield
    except psycopg.Error as error:
        database.close()
        raise clear_error(error, url) or unreachable(error, url) from error
    except BaseException:
        database.close()
        raise
