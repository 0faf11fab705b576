"""Letting a further folder use the store of a home, so that controllers on several machines share its runs."""

from __future__ import annotations

import os
import socket
from contextlib import closing
from pathlib import Path

import msgspec

from evalfleet.errors import InputError, StoreUnwritable
from evalfleet.store.database.postgres.database import PostgresDatabase
from evalfleet.store.database.postgres.open import closed_on_error
from evalfleet.store.database.postgres.schema import migrate
from evalfleet.store.database.postgres.server import refuse_password
from evalfleet.store.home import identity, place


def join(home: Path, url: str) -> identity.Identity | None:
    """Make the folder a further one of the home whose store is there; returns that home. None: the store belongs to no home yet.

    Raises InputError where the folder has a store already, StoreError.
    """
    if place.is_there(home):
        raise InputError(f"{home} has a store already; join with another folder: --home DIR")
    refuse_password(url)
    database = PostgresDatabase(url, readonly=False)
    with closed_on_error(database, url), closing(database):
        migrate(database)
        known = identity.read(database)
        if known is None:
            return None
        _make(home)
        member = os.urandom(8).hex()
        facts = identity.facts_of(home, place.stage(home, url, member))
        with database.transaction():
            database.rows(
                "insert_member",
                id=member,
                host=socket.gethostname(),
                joined_at=database.now(),
                **msgspec.to_builtins(facts),
            )
        place.use_staged(home)
        return known


def _make(home: Path) -> None:
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        (home / "locks").mkdir(exist_ok=True)
    except OSError as error:
        raise StoreUnwritable(f"cannot make {home}: {error.strerror}; choose another folder with --home DIR") from error
