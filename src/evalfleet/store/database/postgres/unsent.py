"""Statements of a transaction whose answers are not waited for: they go to the server together with the next one that is.

Most of the time of a transaction is spent on the way to the server and back, and half of its statements answer nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from psycopg import Cursor
from psycopg.rows import DictRow

from evalfleet.store.database.postgres.server import Connection


class Unsent:
    def __init__(self) -> None:
        self._steps: list[tuple[str, Sequence[Any]]] = []
        self._sent = 0  # how often they were sent

    def __bool__(self) -> bool:
        return bool(self._steps)

    def add(self, text: str, values: Sequence[Any] = ()) -> None:
        self._steps.append((text, values))

    def clear(self) -> None:
        self._steps.clear()
        self._sent += 1

    def place(self) -> tuple[int, int]:
        """Where the next one will be."""
        return self._sent, len(self._steps)

    def drop_since(self, place: tuple[int, int]) -> bool:
        """Forget those that were added since. False: some of them were sent already."""
        sent, count = place
        if sent != self._sent:
            self._steps.clear()
            return False
        del self._steps[count:]
        return True

    def send(self, connection: Connection) -> Cursor[DictRow] | None:
        """Execute all of them in one round trip; returns the answer to the last. Raises psycopg.Error."""
        last: Cursor[DictRow] | None = None
        try:
            with connection.pipeline():
                for text, values in self._steps:
                    last = connection.execute(text.encode(), values or None)
        finally:
            self.clear()
        return last
