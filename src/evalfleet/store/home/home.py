"""The home itself: who it is."""

from __future__ import annotations

from pathlib import Path

from evalfleet.store.database.base import Database
from evalfleet.store.events import Events
from evalfleet.store.home.facts import Identity, identity_of


class HomeQueries:
    def __init__(self, database: Database) -> None:
        self._db = database

    def identity(self) -> Identity:
        """The home's id, label and place."""
        return identity_of(self._db.rows("select_home")[0])

    def folder(self, member: str) -> str:
        """Where a folder of the home is, in words: "/data/evalfleet on box1"."""
        if not member:
            known = self.identity()
            return f"{known.facts.path} on {known.label.partition('@')[2].rpartition('-')[0]}"
        found = self._db.rows("select_member", id=member)
        return f"{found[0]['path']} on {found[0]['host']}" if found else "a folder that is gone"


class HomeRecord(HomeQueries):
    def __init__(self, database: Database, events: Events) -> None:
        super().__init__(database)
        self._events = events

    def adopt(self, home: Path) -> tuple[Identity, Identity] | None:
        """Let a copy of a home take the original's place. Returns who the original was, and who the copy is now; None: it is no
        copy. Event `home.adopted`. Raises CopiedHome where the original is in use."""
        from evalfleet.store.home import identity  # once in the life of a home

        with self._db.transaction():
            adopted = identity.adopt(self._db, home)
            if adopted is not None:
                was, now = adopted
                data = {"from": was.id, "to": now.id, "original": was.facts.path}
                self._events.write("home", "home.adopted", data)
            return adopted
