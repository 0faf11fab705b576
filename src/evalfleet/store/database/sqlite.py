"""SQLite: one file, any number of readers, one writer at a time across processes.

Every write transaction holds an exclusive lock on `write.lock`, which also covers checkpoints and the close of a
read-write connection: SQLite below 3.51.3 can corrupt a WAL when two connections write and checkpoint at the same
moment. The owner of a run holds a lock on a file of its own, so that a take-over after `kill -9` need not wait for any
time-out.
"""

from __future__ import annotations

import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evalfleet.errors import InputError, Owned, StoreBusy, StoreCorrupt, StoreUnwritable
from evalfleet.store.database.clock import SteadyClock
from evalfleet.store.database.file import FILE, clear_error, clear_errors, damage, garbled
from evalfleet.store.database.file_lock import FileLock, holder
from evalfleet.store.database.migration import migrate, schema_version, too_new
from evalfleet.store.database.statements import migrations, statements
from evalfleet.store.home import identity
from evalfleet.store.home.process import lives
from evalfleet.store.runs import rows
from evalfleet.store.runs.queries import Conflict, Reading

if TYPE_CHECKING:
    from evalfleet.store.runs.transitions import Writing

DIALECT = "sqlite"
BUSY_S = 30.0
_PAGE = 256  # rows that are read ahead where all of them may be too many
_ASKED_S = 0.2  # how long an owner's lock may be taken by others who only ask whether it is
Clock = Callable[[], float]


class SqliteDatabase:
    """Implements `Database`."""

    def __init__(self, home: Path, *, readonly: bool, clock: Clock) -> None:
        self._home = home
        self._clock = clock
        self._sql = statements(DIALECT)
        self._depth = 0
        self._reading = 0
        # One thread at a time uses a store. But an interrupted caller does not wait for its thread, and SQLite crashes if it is closed
        # under a statement: so whoever closes waits for what has begun.
        self._in_use = threading.RLock()
        self._owned: dict[str, FileLock] = {}
        self._lock = None if readonly else FileLock(home / "write.lock")
        self._connection = sqlite3.connect(
            f"{(home / FILE).absolute().as_uri()}?mode={'ro' if readonly else 'rwc'}",
            uri=True,
            timeout=BUSY_S,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
        )
        # A store that nobody closed is closed here at the latest, because SQLite's own close would not hold the lock.
        self._closing = weakref.finalize(self, _close, self._connection, self._lock, self._owned)
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

    def rows(self, name: str, /, **values: Any) -> list[rows.Row]:
        try:
            with self._in_use:
                return self._connection.execute(self._sql[name], values).fetchall()
        except UnicodeEncodeError as error:
            raise InputError(f"{error.object!r} is not Unicode text") from error
        except UnicodeDecodeError as error:
            raise garbled(error, self._home) from error
        except sqlite3.Error as error:
            raise clear_error(error, self._home) or error from error

    def stream(self, name: str, /, **values: Any) -> Iterator[rows.Row]:
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
        try:
            with self._in_use:
                self._connection.executemany(self._sql[name], values)
        except sqlite3.IntegrityError as error:
            raise Conflict(str(error)) from error
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

    def own(self, run_id: str, owner: str) -> None:
        if run_id in self._owned:
            return
        lock = FileLock(self._owner_file(run_id))
        if not lock.acquire(_ASKED_S):
            signature = lock.signature()
            lock.close()
            raise Owned(
                f"run {run_id} is driven by {signature or 'another process'}; "
                f"look at it with `evalfleet watch {run_id}`, stop it with `evalfleet cancel {run_id}`"
            )
        lock.sign(owner)
        self._owned[run_id] = lock

    def disown(self, run_id: str) -> None:
        lock = self._owned.pop(run_id, None)
        if lock is not None:
            lock.close()

    def driver(self, run_id: str) -> str | None:
        found = holder(self._owner_file(run_id))
        return "another process" if found == "" else found

    def lives(self, pid: int, born: str, boot: str) -> bool | None:
        return lives(pid, born, boot)

    def close(self) -> None:
        with self._in_use:
            self._closing()

    def _owner_file(self, run_id: str) -> Path:
        return self._home / "locks" / f"{run_id}.lock"

    def _execute(self, sql: str) -> sqlite3.Cursor:
        try:
            with self._in_use:
                return self._connection.execute(sql)
        except sqlite3.Error as error:
            raise clear_error(error, self._home) or error from error

    def _fetched(self, cursor: sqlite3.Cursor) -> list[rows.Row]:
        with self._in_use:
            return cursor.fetchmany(_PAGE)

    def _data_version(self) -> int:
        return self._execute("pragma data_version").fetchone()[0]

    @contextmanager
    def _locked(self) -> Generator[None]:
        assert self._lock is not None, "a reader does not write"
        with _held(self._lock):
            yield


@contextmanager
def _held(lock: FileLock) -> Generator[None]:
    if not lock.acquire(BUSY_S):
        raise StoreBusy(f"another process has held {lock.path} for {BUSY_S:.0f} s; `evalfleet doctor` shows who")
    try:
        yield
    finally:
        lock.release()


def _close(connection: sqlite3.Connection, lock: FileLock | None, owned: dict[str, FileLock]) -> None:
    while owned:
        owned.popitem()[1].close()
    if lock is None:
        connection.close()
        return
    # The last close checkpoints and removes the WAL, so it is a write as well.
    try:
        with _held(lock):
            connection.close()
    finally:
        lock.close()


def open_store(home: Path, clock: Clock | None = None, *, copies: bool = False) -> Writing:
    """Open for writing; makes the home, for its user alone, and brings its schema up to date.

    Args:
        copies: open a home as well that is a copy of another one, see `identity`.

    Raises StoreUnwritable, StoreCorrupt, StoreTooNew, StoreBusy, CopiedHome.
    """
    from evalfleet.store.runs.transitions import Writing  # commands that only look need not load it

    try:
        if not (home / FILE).exists():
            identity.refuse_moved(home)
        home.parent.mkdir(parents=True, exist_ok=True)
        home.mkdir(exist_ok=True, mode=0o700)
        (home / "locks").mkdir(exist_ok=True)
    except (OSError, ValueError) as error:
        cause = getattr(error, "strerror", None) or error
        raise StoreUnwritable(f"cannot make the home {str(home)!r}: {cause}; choose another with --home DIR") from error
    _refuse_damaged(home)
    with clear_errors(home):
        database = SqliteDatabase(home, readonly=False, clock=clock or SteadyClock())
        try:
            _migrate(database, home)
            identity.settle(database, home, copies=copies)
        except BaseException:
            database.close()
            raise
    return Writing(database)


def open_reader(home: Path, clock: Clock = time.time) -> Reading | None:
    """Open for reading; None if the home has no database yet. Raises like `open_store`."""
    try:
        if not (home / FILE).exists():
            return None
    except (OSError, ValueError) as error:
        cause = getattr(error, "strerror", None) or error
        raise StoreUnwritable(
            f"cannot look into the home {str(home)!r}: {cause}; choose another with --home DIR"
        ) from error
    _refuse_damaged(home)
    known = len(migrations(DIALECT))
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
    return Reading(database)


def _refuse_damaged(home: Path) -> None:
    """Raise StoreCorrupt if the file is not whole. Looks twice, because a writer may just be about to complete it."""
    if damage(home) is None:
        return
    lock = FileLock(home / "write.lock")
    try:
        with _held(lock):
            found = damage(home)
    finally:
        lock.close()
    if found is not None:
        raise StoreCorrupt(found)


def _migrate(database: SqliteDatabase, home: Path) -> None:
    known = migrations(DIALECT)
    if schema_version(database.connection) == len(known):
        return
    # A table that others refer to can be made anew only without them; a transaction does not let this change.
    database.connection.execute("pragma foreign_keys = off")
    with database.transaction():
        migrate(database.connection, home, known)
    database.connection.execute("pragma foreign_keys = on")
