"""The row of a session: how many transactions it has committed. It outlives the connection that is cut."""

from __future__ import annotations

import os

from evalfleet.store.database.postgres.server import Connection, command

_OLD_S = 30 * 24 * 3600.0  # rows of sessions that ended without a close go after this time


class Session:
    def __init__(self) -> None:
        self.id = os.urandom(12).hex()
        self.number = 0  # of its last transaction

    def to_keep(self, number: int) -> tuple[str, ...]:
        """Statements that keep the number of a transaction, at its end."""
        if number > 1:
            return (f"update session set number = {number} where id = '{self.id}'",)
        return (
            f"delete from session where at < extract(epoch from now()) - {_OLD_S}",
            f"insert into session (id, number, at) values ('{self.id}', 1, extract(epoch from now()))",
        )

    def to_forget(self) -> str:
        return f"delete from session where id = '{self.id}';" if self.number else ""

    def stored(self, connection: Connection) -> int:
        """The number of its last transaction, as the server knows it."""
        found = command(connection, f"select number from session where id = '{self.id}'")
        return 0 if found is None else found["number"]
