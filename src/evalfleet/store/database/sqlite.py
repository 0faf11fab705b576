"""SQLite: one file, any number of readers, one writer at a time across processes.

Every write transaction holds an exclusive lock on `write.lock`, which also covers checkpoints and the close of a
read-write connection: SQLite below 3.51.3 can corrupt a WAL when two connections write and checkpoint at the same
moment. A named lock is a lock on a file of its own, which the kernel frees when its process dies: a take-over after
`kill -9` waits for no time-out.
"""

from __future__ import annotations

import sqlite3
import threading
import weakref
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from evalfleet.errors import InputError, StoreBusy
from evalfleet.store.database.base import Conflict, Row
from evalfleet.store.database.file import FILE, clear_error, garbled
from evalfleet.store.database.file_lock import FileLock, holder
from evalfleet.store.database.statements import statements

DIALECT = "sqlite"
BUSY_S = 30.0
_PAGE = 256  # rows that are read ahead where all of them may be too many
_ASKED_S = 0.2  # a lock may be held this long by others who only ask who owns it
_UNSIGNED = "another process"
Clock = Callable[[], float]


class SqliteDatabase:
    """Implements `Database` by one SQLite file in a home."""

    def __init__(self, home: Path, *, readonly: bool, clock: Clock) -> None:
        self._home = home
        self._clock = clock
        self._sql = statements(DIALECT)
        self._depth = 0
        self._reading = 0
        # One thread at a time uses a store. But an interrupted caller does not wait for its thread, and SQLite crashes if it is closed
        # under a statement: so a close waits for the statement that has begun.
        self._in_use = threading.RLock()
        self._locks: dict[str, FileLock] = {}
        self._write_lock = None if readonly else FileLock(home / "write.lock")
        self._connection = sqlite3.connect(
            f"{(home / FILE).absolute().as_uri()}?mode={'ro' if readonly else 'rwc'}",
            uri=True,
            timeout=BUSY_S,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
        )
        # Closes a store that its user forgot to close: SQLite's own close would not hold the lock.
        self._closing = weakref.finalize(self, _close, self._connection, self._write_lock, self._locks)
        self._connection.row_factory = sqlite3.Row
        try:
            self._connection.execute("pragma foreign_keys = on")
            if not readonly:
                with self._locked():
                    self._connection.execute("pragma journal_mode = wal")
                    self._connection.execute("pragma synchronous = full")
                # The journal of a batch's parts: a few pages, for which files would cost more than the parts.
                self._connection.execute("pragma temp_store = memory")
            self._version = self._data_version()
        except BaseException:
            self.close()
            raise

    @property
    def connection(self) -> sqlite3.Connection:
        return self._connection

    @property
    def member(self) -> str:
        return ""  # a file is in one folder

    def rows(self, name: str, /, **values: Any) -> list[Row]:
        try:
            with self._in_use:
                return self._connection.execute(self._sql[name], values).fetchall()
        except UnicodeEncodeError as error:
            raise InputError(f"{error.object!r} is not Unicode text") from error
        except UnicodeDecodeError as error:
            raise garbled(error, self._home) from error
        except sqlite3.Error as error:
            raise clear_error(error, self._home) or error from error

    def stream(self, name: str, /, **values: Any) -> Iterator[Row]:
        try:
            with self._in_use:
                cursor = self._connection.execute(self._sql[name], values)
            while found := self._fetched(cursor):
                yield from found
        except UnicodeDecodeError as error:
            raise garbled(error, self._home) from error
        except sqlite3.Error as error:
            raise clear_error(error, self._home) or error from error

    def many(self, name: str, values: Iterator[dict[str, Any]]) -> None:
        last: dict[str, Any] = {}

        def seen() -> Iterator[dict[str, Any]]:
            nonlocal last
            for one in values:
                last = one
                yield one

        try:
            with self._in_use:
                self._connection.executemany(self._sql[name], seen())
        except sqlite3.IntegrityError as error:
            raise Conflict(str(error), last) from error
        except sqlite3.Error as error:
            raise clear_error(error, self._home) or error from error

    @contextmanager
    def transaction(self) -> Generator[None]:
        if self._reading:
            raise RuntimeError("a write inside a snapshot")
        if self._depth:
            with self._part():
                yield
            return
        with self._in_use, self._locked():
            self._execute("begin immediate")
            self._depth = 1
            try:
                yield
                self._execute("commit")
            except BaseException:
                # A full disk makes SQLite roll back by itself.
                if self._connection.in_transaction:
                    self._connection.execute("rollback")
                raise
            finally:
                self._depth = 0

    @contextmanager
    def _part(self) -> Generator[None]:
        """A method inside a batch: if it fails and the caller goes on, nothing of it remains."""
        self._depth += 1
        name = f"part_{self._depth}"
        self._connection.execute(f"savepoint {name}")
        try:
            yield
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute(f"rollback to {name}")
            raise
        finally:
            if self._connection.in_transaction:
                self._connection.execute(f"release {name}")
            self._depth -= 1

    @contextmanager
    def snapshot(self) -> Generator[None]:
        if self._depth or self._reading:
            yield
            return
        self._execute("begin deferred")
        self._reading = 1
        try:
            yield
        finally:
            self._reading = 0
            self._execute("commit")

    def changed(self) -> bool:
        version = self._data_version()
        changed, self._version = version != self._version, version
        return changed

    def now(self) -> float:
        return self._clock()

    def lock(self, name: str, owner: str) -> str | None:
        if name in self._locks:
            return None
        lock = FileLock(self._lock_file(name))
        if not lock.acquire(_ASKED_S):
            signature = lock.signature()
            lock.close()
            return signature or _UNSIGNED
        lock.sign(owner)
        self._locks[name] = lock
        return None

    def unlock(self, name: str) -> None:
        lock = self._locks.pop(name, None)
        if lock is not None:
            lock.close()

    def lock_owner(self, name: str) -> str | None:
        found = holder(self._lock_file(name))
        return _UNSIGNED if found == "" else found

    def close(self) -> None:
        with self._in_use:
            self._closing()

    def _lock_file(self, name: str) -> Path:
        return self._home / "locks" / f"{name}.lock"

    def _execute(self, sql: str) -> sqlite3.Cursor:
        try:
            with self._in_use:
                return self._connection.execute(sql)
        except sqlite3.Error as error:
            raise clear_error(error, self._home) or error from error

    def _fetched(self, cursor: sqlite3.Cursor) -> list[Row]:
        with self._in_use:
            return cursor.fetchmany(_PAGE)

    def _data_version(self) -> int:
        return self._execute("pragma data_version").fetchone()[0]

    @contextmanager
    def _locked(self) -> Generator[None]:
        assert self._write_lock is not None, "a reader does not write"
        with held(self._write_lock):
            yield


@contextmanager
def held(lock: FileLock) -> Generator[None]:
    """Hold the write lock. Raises StoreBusy."""
    if not lock.acquire(BUSY_S):
        raise StoreBusy(f"another process has held {lock.path} for {BUSY_S:.0f} s; `evalfleet doctor` shows who")
    try:
        yield
    finally:
        lock.release()


def _close(connection: sqlite3.Connection, lock: FileLock | None, locks: dict[str, FileLock]) -> None:
    while locks:
        locks.popitem()[1].close()
    if lock is None:
        connection.close()
        return
    # The last close checkpoints and removes the WAL, so it is a write as well.
    try:
        with held(lock):
            connection.close()
    finally:
        lock.close()
