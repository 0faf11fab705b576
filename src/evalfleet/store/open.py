"""Opening the store of a home.

A home has its database in itself, in SQLite, or on a PostgreSQL server. Which one is chosen here, and nowhere else.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from evalfleet.errors import StoreCorrupt, StoreUnwritable
from evalfleet.store.database.clock import SteadyClock
from evalfleet.store.database.file import clear_errors, damage
from evalfleet.store.database.file_lock import FileLock
from evalfleet.store.database.migration import migrate, schema_version, too_new
from evalfleet.store.database.sqlite import DIALECT, Clock, SqliteDatabase, held
from evalfleet.store.database.statements import migrations
from evalfleet.store.home import identity, place
from evalfleet.store.reader import StoreReader

if TYPE_CHECKING:
    from evalfleet.store.store import Store


def open_store(home: Path, clock: Clock | None = None, *, copies: bool = False) -> Store:
    """Open for writing. Makes the home, readable by its user only, and brings its schema up to date.

    Args:
        copies: also open a home that is a copy of another one, see `identity`.

    Raises StoreUnwritable, StoreCorrupt, StoreTooNew, StoreBusy, CopiedHome.
    """
    from evalfleet.store.store import Store  # commands that only read need not load it

    url = place.url_of(home)
    try:
        if not place.is_there(home):
            identity.refuse_moved(home)
        home.parent.mkdir(parents=True, exist_ok=True)
        home.mkdir(exist_ok=True, mode=0o700)
        (home / "locks").mkdir(exist_ok=True)
    except (OSError, ValueError) as error:
        cause = getattr(error, "strerror", None) or error
        raise StoreUnwritable(f"cannot make the home {str(home)!r}: {cause}; choose another with --home DIR") from error
    if url is not None:
        from evalfleet.store.database.postgres.open import open_database

        return Store(open_database(home, url, clock, copies=copies))
    _refuse_damaged(home)
    with clear_errors(home):
        database = SqliteDatabase(home, readonly=False, clock=clock or SteadyClock())
        try:
            migrate_file(database, home)
            identity.settle(database, home, copies=copies)
        except BaseException:
            database.close()
            raise
    return Store(database)


def open_reader(home: Path, clock: Clock | None = None) -> StoreReader | None:
    """Open for reading; None if the home has no database yet. Raises like `open_store`."""
    try:
        if not place.is_there(home):
            return None
    except (OSError, ValueError) as error:
        cause = getattr(error, "strerror", None) or error
        raise StoreUnwritable(
            f"cannot look into the home {str(home)!r}: {cause}; choose another with --home DIR"
        ) from error
    url = place.url_of(home)
    if url is not None:
        from evalfleet.store.database.postgres.open import open_for_reading

        return StoreReader(open_for_reading(home, url, clock))
    _refuse_damaged(home)
    known = len(migrations(DIALECT))
    clock = clock or time.time
    with clear_errors(home):
        database = SqliteDatabase(home, readonly=True, clock=clock)
        version = schema_version(database.connection)
        if version != known:
            database.close()
            if version > known:
                raise too_new(home, version, known)
            open_store(home, clock, copies=True).close()
            database = SqliteDatabase(home, readonly=True, clock=clock)
        words = identity.copy_words(database, home)
        if words is not None:
            identity.seen[home] = words
    return StoreReader(database)


def _refuse_damaged(home: Path) -> None:
    """Raise StoreCorrupt if the file is not whole. Looks twice, because a writer may just be about to complete it."""
    if damage(home) is None:
        return
    lock = FileLock(home / "write.lock")
    try:
        with held(lock):
            found = damage(home)
    finally:
        lock.close()
    if found is not None:
        raise StoreCorrupt(found)


def migrate_file(database: SqliteDatabase, home: Path) -> None:
    """Bring the schema of an SQLite file up to date."""
    known = migrations(DIALECT)
    if schema_version(database.connection) == len(known):
        return
    # A table that others refer to can be made anew only without them; a transaction does not let this change.
    database.connection.execute("pragma foreign_keys = off")
    with database.transaction():
        migrate(database.connection, home, known)
    database.connection.execute("pragma foreign_keys = on")
