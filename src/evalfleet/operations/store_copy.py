"""Copying what a home remembers between its SQLite file and a PostgreSQL server."""

from __future__ import annotations

import os
import shutil
from collections.abc import Generator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from msgspec import Struct, to_builtins

from evalfleet.answers.home import StoreCopy
from evalfleet.errors import InputError, NotFound, StoreError
from evalfleet.store.copy import copy_tables, refuse_filled, refuse_used
from evalfleet.store.database.clock import SteadyClock
from evalfleet.store.database.file import FILE
from evalfleet.store.database.sqlite import DIALECT, SqliteDatabase
from evalfleet.store.database.statements import migrations
from evalfleet.store.home import identity, place
from evalfleet.store.open import migrate_file
from evalfleet.store.store import Store
from evalfleet.store.tables import PostgresTables, SqliteTables, Tables

HOME = "home"  # the word for the home of `--home`
_SCHEMES = ("postgresql://", "postgres://")


class Side(Struct, frozen=True):
    """Where one of the two stores is: on a server, in a folder, or on a server that a folder uses."""

    url: str | None
    folder: Path | None

    def __str__(self) -> str:
        return str(self.folder) if self.url is None else _address(self.url)


def copy_store(source: str, target: str, home: Path) -> StoreCopy:
    """Copy all rows, check them, and let the folder that is one of the two use the copy from then on.

    Args:
        source: a folder, an address `postgresql://…`, or the word `home`.
        target: the same; it must be empty.
        home: what the word `home` stands for.

    Raises:
        InputError, NotFound, Owned, StoreError: nothing was changed.
    """
    begins, ends = _side(source, home), _side(target, home)
    if begins.url is None and ends.url is None:
        raise InputError("one of the two must be on a server; a folder is copied with `cp -a`")
    if ends.folder is not None and begins.folder is not None:
        raise InputError("name a folder and a server, and not two folders")
    if begins.folder is not None and not place.is_there(begins.folder):
        raise NotFound(f"there is no home in {begins.folder}")
    with ExitStack() as stack:
        old = stack.enter_context(_source(begins))
        new = stack.enter_context(_target(ends, begins))
        with old.transaction(), new.transaction():
            refuse_used(Store(old.database))
            refuse_filled(new)
            rows = copy_tables(old, new)
            if begins.folder is not None:
                staged = place.stage(begins.folder, ends.url or "")
                new.database.rows("place_home", **to_builtins(identity.facts_of(begins.folder, staged)))
    return StoreCopy(source=str(begins), target=str(ends), rows=rows, kept=_switch(begins, ends))


def _side(text: str, home: Path) -> Side:
    if text.startswith(_SCHEMES):
        from evalfleet.store.database.postgres.server import refuse_password

        refuse_password(text)
        return Side(text, None)
    folder = home if text == HOME else Path(text).expanduser().absolute()
    return Side(place.pointed(folder), folder)


@contextmanager
def _source(side: Side) -> Generator[Tables]:
    with _opened(side) as tables:
        _refuse_other_version(tables, str(side))
        yield tables


def _refuse_other_version(tables: Tables, where: str) -> None:
    known = migrations(DIALECT)[-1].version
    if tables.version() != known:
        raise StoreError(
            f"{where} has schema {tables.version()}, and this evalfleet copies schema {known}; `evalfleet status` brings an older one up "
            "to date"
        )


@contextmanager
def _target(side: Side, source: Side) -> Generator[Tables]:
    """An empty store with all tables. One in a folder is made beside its place, and moved there when it is complete."""
    if side.folder is None:
        with _opened(side) as tables:
            from evalfleet.store.database.postgres.schema import migrate

            assert isinstance(tables, PostgresTables)
            if tables.version() == 0:
                migrate(tables.database)
            _refuse_other_version(tables, str(side))
            yield tables
        return
    if (side.folder / FILE).exists() or (side.url is not None and side.url != source.url):
        raise StoreError(f"the target is not empty: {side.folder} has a store already; name an empty folder")
    partial = side.folder / f".copy-{os.getpid()}"
    partial.mkdir(parents=True, mode=0o700)
    try:
        with closing(SqliteDatabase(partial, readonly=False, clock=SteadyClock())) as database:
            migrate_file(database, partial)
            tables = SqliteTables(database)
            yield tables
            with database.transaction():
                database.rows("place_home", **to_builtins(identity.facts_of(side.folder, partial / FILE)))
        (partial / FILE).rename(side.folder / FILE)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


@contextmanager
def _opened(side: Side) -> Generator[Tables]:
    if side.url is None:
        assert side.folder is not None
        with closing(SqliteDatabase(side.folder, readonly=False, clock=SteadyClock())) as database:
            yield SqliteTables(database)
        return
    from evalfleet.store.database.postgres.database import PostgresDatabase

    with closing(PostgresDatabase(side.url, readonly=False)) as database:
        yield PostgresTables(database)


def _switch(source: Side, target: Side) -> str | None:
    """Let the folder use the copy. Returns where what it used before is kept."""
    if source.folder is not None:
        place.use_staged(source.folder)
        return place.set_aside(source.folder / FILE) if source.url is None else None
    if target.folder is not None and target.url is not None:
        return place.set_aside(target.folder / place.POINTER)
    return None


def _address(url: str) -> str:
    from evalfleet.store.database.postgres.server import address

    return address(url)
