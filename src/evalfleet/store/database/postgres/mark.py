"""What a home has seen of its store, so that it notices a server that was restored from an older backup."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

import psycopg

from evalfleet.errors import StoreRestored
from evalfleet.store.database.postgres.server import Connection, command
from evalfleet.store.home import place

_PAUSE_S = 1.0  # how often it is set
_REMOVED_SINCE = "select 1 as yes from removal where part = 'run' and removed_at >= {at} limit 1"


class SeenMark:
    """The newest event, kept in a file of the home."""

    def __init__(self, home: Path | None) -> None:
        self._home = home
        self._set_s = time.monotonic()

    def is_due(self) -> bool:
        return time.monotonic() - self._set_s > _PAUSE_S

    def set(self, connection: Connection) -> None:
        self._set_s = time.monotonic()
        if self._home is None:
            return
        with suppress(psycopg.Error):
            found = command(connection, "select number, at, type from event order by number desc limit 1")
            if found is not None:
                place.write_mark(self._home, place.Mark(**found))

    def check(self, connection: Connection, where: str) -> None:
        """Raise StoreRestored where the store lacks an event that this home has seen."""
        if self._home is None or (mark := place.read_mark(self._home)) is None:
            return
        found = command(connection, f"select at, type from event where number = {mark.number}")
        if found is None and command(connection, _REMOVED_SINCE.format(at=repr(mark.at))) is not None:
            return  # the event may have gone with its run; a store that knows of that removal has seen all that came before
        if found is None or (found["at"], found["type"]) != (mark.at, mark.type):
            raise StoreRestored(
                f"the store {where} is older than what {self._home} has seen of it (event {mark.number} is not there): it was restored "
                f"from a backup. Nothing was changed; restore a newer one, or remove {place.mark_file(self._home)} to go on without what "
                "is lost"
            )
