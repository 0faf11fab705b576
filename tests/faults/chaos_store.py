"""The database of a round, as the harness looks into it from outside, and what it does to a server."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, Protocol

Row = Mapping[str, Any]


class Store(Protocol):
    env: dict[str, str]  # what a controller needs to find it

    def ask(self, question: str) -> list[Row] | None:
        """The rows of an answer; None: there is no database yet, or none of its tables."""
        ...

    def faults(self) -> list[str]:
        """What the database itself finds wrong."""
        ...

    def crash(self) -> None:
        """Stop the server at once, and start it again."""
        ...

    def cut(self) -> bool:
        """End all connections. False: there was none."""
        ...

    def close(self) -> None: ...


class SqliteStore:
    def __init__(self, home: Path) -> None:
        self._file = home / "evalfleet.db"
        self.env: dict[str, str] = {}

    def ask(self, question: str) -> list[Row] | None:
        try:
            with closing(sqlite3.connect(f"file:{self._file}?mode=ro", uri=True, timeout=30)) as connection:
                connection.row_factory = sqlite3.Row
                return [dict(row) for row in connection.execute(question)]
        except sqlite3.OperationalError:
            return None

    def faults(self) -> list[str]:
        checks = {check: self.ask(f"pragma {check}") or [] for check in ("integrity_check", "foreign_key_check")}
        good = [{"integrity_check": "ok"}]
        return [f"{check}: {found}" for check, found in checks.items() if found and found != good]

    def crash(self) -> None:
        raise NotImplementedError("a file has no server")

    def cut(self) -> bool:
        raise NotImplementedError("a file has no connections")

    def close(self) -> None:
        """Nothing is open between two questions."""


class PostgresStore:
    """A server of the round's own."""

    def __init__(self) -> None:
        from tests.support.postgres import running

        self._stack = ExitStack()
        self._server = self._stack.enter_context(running())
        self._url = self._server.url("public")
        self.env = {"EVALFLEET_STORE_URL": self._url}

    def ask(self, question: str) -> list[Row] | None:
        import psycopg
        from psycopg.rows import DictRow, dict_row

        deadline = time.monotonic() + 30
        while True:
            try:
                with psycopg.Connection[DictRow].connect(self._url, row_factory=dict_row) as connection:
                    return list[Row](connection.execute(question.encode()).fetchall())
            except psycopg.errors.UndefinedTable:
                return None
            except psycopg.OperationalError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)

    def faults(self) -> list[str]:
        """A server checks what refers to what by itself; here, that no number of an event is used twice or for nothing."""
        found = self.ask("select number from event group by number having count(*) > 1")
        return [f"event {row['number']} is there twice" for row in found or []]

    def crash(self) -> None:
        self._server.stop()
        self._server.start()

    def cut(self) -> bool:
        return self._server.cut() > 0

    def close(self) -> None:
        self._stack.close()
