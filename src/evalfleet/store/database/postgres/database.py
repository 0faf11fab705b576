"""PostgreSQL: one connection to a server that several machines may share.

A write transaction holds one advisory lock, so that transactions happen one after another and the numbers of events become visible in
their order, as in SQLite. Every commit notifies the other connections (`notify`).

A connection may be cut at any moment. The next call makes a new one and takes the same locks again, unless another process had one of
them meanwhile: then this process is fenced for good. A transaction that was cut is done again, see `replay`; where its commit was cut,
a row that it writes tells whether it has happened already.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg

from evalfleet.errors import InputError, StoreCut, StoreError, StoreFenced, StoreRestored
from evalfleet.store.database.base import Conflict, Row
from evalfleet.store.database.postgres.clock import ServerClock
from evalfleet.store.database.postgres.dialect import Statement, translated
from evalfleet.store.database.postgres.locks import NamedLocks, key_of
from evalfleet.store.database.postgres.mark import SeenMark
from evalfleet.store.database.postgres.replay import Replay
from evalfleet.store.database.postgres.server import (
    CHANNEL,
    SHUT_DOWN,
    Connection,
    address,
    clear_error,
    command,
    connect,
    connected_again,
    cut,
    schema_of,
    unreachable,
)
from evalfleet.store.database.postgres.session import Session
from evalfleet.store.database.postgres.unsent import Unsent
from evalfleet.store.home import place

Clock = Callable[[], float]

_AT_A_TIME = 500  # rows that are sent together
_SNAPSHOT = "begin isolation level repeatable read read only; select 1"
_PAGE = 256  # rows that are read ahead where all of them may be too many
_PATIENCE_S = 300.0  # how long a server that went away is waited for: tasks go on meanwhile

# A transaction that was undone leaves a gap in the numbers of rows. Under the write lock the next ones can follow without it.
_NUMBER_ON = "select " + ", ".join(
    f"setval(pg_get_serial_sequence('{table}', '{column}'), (select coalesce(max({column}), 0) + 1 from {table}), false)"
    for table, column in (("event", "number"), ("request", "number"), ("gpu_ticket", "number"), ("run", "rowid"))
)


class PostgresDatabase:
    """Implements `Database` by one schema on a server."""

    def __init__(self, url: str, *, readonly: bool, clock: Clock | None = None, home: Path | None = None) -> None:
        """Args:
        clock: in place of the server's.
        home: gets a mark of what was seen last, see `place`.
        """
        self._mark = SeenMark(home)
        self.member = "" if home is None else place.member_of(home)
        self._url = url
        self._readonly = readonly
        self._server_clock = ServerClock()
        self._clock = clock or self._server_clock
        self._sql = translated()
        self._depth = 0
        self._reading = 0
        self._wrote = False
        self._in_use = threading.RLock()
        self._session = Session()
        self._changed = False
        self._over: StoreError | None = None
        self.schema = ""  # until it is known: notifications may come before
        self._streams = itertools.count(1)
        self._replay = Replay()
        self._unsent = Unsent()
        self._pid, self.schema = 0, ""  # other connections may be heard as soon as there is one
        try:
            self._connection = self._connected()
            self.schema = schema_of(self._connection, self.where)
        except psycopg.Error as error:
            raise unreachable(error, url) from error
        self._pid = self._connection.info.backend_pid
        self._begin_text = f"begin; select pg_advisory_xact_lock({key_of(self.schema, '')})"
        self._locks = NamedLocks(self.schema, self._session.id)

    @property
    def connection(self) -> Connection:
        return self._connection

    @property
    def where(self) -> str:
        """The server and the database, for a person."""
        return address(self._url)

    def rows(self, name: str, /, **values: Any) -> list[Row]:
        statement = self._sql[name]
        with self._in_use:
            self._wrote |= statement.writes
            given = self._given(statement, values)
            if self._depth and not statement.answers:
                self._ready()
                self._unsent.add(statement.text, given)
                found: list[Row] = []
            else:
                found = self._answer(lambda: self._fetched(statement.text, given))
            if self._depth or self._reading:
                self._replay.add(statement.text, given, found)
            return found

    def _given(self, statement: Statement, values: dict[str, Any]) -> list[Any]:
        try:
            return statement.values(values)
        except UnicodeEncodeError as error:
            raise InputError(f"{error.object!r} is not Unicode text") from error

    def stream(self, name: str, /, **values: Any) -> Iterator[Row]:
        statement = self._sql[name]
        with self._in_use:
            self._flush()
            self._replay.forbid()
            cursor = self._connection.cursor(
                f"stream_{next(self._streams)}", withhold=not (self._depth or self._reading)
            )
            cursor.itersize = _PAGE
        try:
            with self._clear_errors():
                cursor.execute(statement.text.encode(), self._given(statement, values))
                while found := cursor.fetchmany(_PAGE):
                    yield from found
        finally:
            with suppress(psycopg.Error):
                cursor.close()

    def many(self, name: str, values: Iterator[dict[str, Any]]) -> None:
        statement = self._sql[name]
        with self.transaction():
            self._wrote |= statement.writes
            self._replay.forbid()  # a submission of many tasks is made again rather than kept in memory
            while some := list(itertools.islice(values, _AT_A_TIME)):
                given = [self._given(statement, one) for one in some]
                try:
                    with self.transaction():
                        self._flush()
                        with self._connection.cursor() as cursor:
                            cursor.executemany(statement.text.encode(), given)
                except psycopg.errors.UniqueViolation:
                    self._one_by_one(statement.text, some, given)
                except psycopg.Error as error:
                    raise self._clear(error) from error

    def _one_by_one(self, text: str, some: list[dict[str, Any]], given: list[list[Any]]) -> None:
        """Find the row whose key exists."""
        for values, row in zip(some, given, strict=True):
            try:
                self._connection.execute(text.encode(), row)
            except psycopg.errors.UniqueViolation as error:
                raise Conflict(str(error), values) from error

    @contextmanager
    def transaction(self) -> Generator[None]:
        if self._reading:
            raise RuntimeError("a write inside a snapshot")
        if self._depth:
            with self._part():
                yield
            return
        with self._in_use:
            self._begin()
            try:
                yield
                self._commit()
            except BaseException:
                with suppress(psycopg.Error):  # a connection that is cut rolls back by itself
                    command(self._connection, "rollback")
                raise
            finally:
                self._depth = 0
                self._unsent.clear()
                self._replay.clear()

    @contextmanager
    def _part(self) -> Generator[None]:
        """A method inside a batch: if it fails and the caller goes on, nothing of it remains."""
        self._depth += 1
        name = f"part_{self._depth}"
        begun = self._unsent.place()
        self._unsent.add(f"savepoint {name}")
        self._replay.begin_part(name)
        try:
            yield
        except BaseException:
            if not self._unsent.drop_since(begun):
                with suppress(psycopg.Error):
                    command(self._connection, f"rollback to {name}; release {name}")
            self._replay.end_part(undone=True)
            raise
        else:
            self._unsent.add(f"release {name}")
            self._replay.end_part(undone=False)
        finally:
            self._depth -= 1

    def _begin(self) -> None:
        try:
            self._answer(lambda: command(self._connection, self._begin_text))
        except BaseException:
            with suppress(psycopg.Error):
                command(self._connection, "rollback")
            raise
        self._replay.clear()
        self._depth, self._wrote = 1, False
        if self._server_clock.is_due():
            self._set_clock(self._connection)

    def _commit(self) -> None:
        number = self._session.number + 1
        while True:
            try:
                if self._wrote:
                    for text in (*self._session.to_keep(number), f"notify {CHANNEL}, '{self.schema}'"):
                        self._unsent.add(text)
                self._unsent.add("commit")
                self._unsent.send(self._connection)
                break
            except psycopg.Error as error:
                if not self._is_cut(error):
                    raise self._clear(error) from error
                if not self._wrote or self._happened(number):
                    break
                self._do_again()
        if self._wrote:
            self._session.number = number
            if self._mark.is_due():
                self._mark.set(self._connection)

    def check_mark(self) -> None:
        """Raise StoreRestored where the store lacks an event that its home has seen."""
        self._mark.check(self._connection, self.where)

    def wrote(self) -> None:
        """Say that the open transaction wrote something by itself, over the connection."""
        self._wrote = True
        self._replay.forbid()

    def _happened(self, number: int) -> bool:
        """Whether the transaction of that number was committed before its connection was cut."""
        while True:
            self._reconnect(allowed=number)
            try:
                # The server may still be about to commit it; it holds the lock until then.
                command(self._connection, self._begin_text)
                stored = self._session.stored(self._connection)
                command(self._connection, "rollback")
                return stored == number
            except psycopg.Error as error:
                if not self._is_cut(error):
                    raise self._clear(error) from error

    @contextmanager
    def snapshot(self) -> Generator[None]:
        if self._depth or self._reading:
            yield
            return
        with self._in_use:
            self._answer(lambda: command(self._connection, _SNAPSHOT))
        self._replay.clear()
        self._reading = 1
        try:
            yield
        finally:
            self._reading = 0
            self._replay.clear()
            with suppress(psycopg.Error):
                command(self._connection, "commit")

    def changed(self) -> bool:
        with self._in_use:
            self._answer(self._hear)
            changed, self._changed = self._changed, False
            return changed

    def _hear(self) -> None:
        """The server sends its notifications of earlier commits before it answers."""
        command(self._connection, "")

    def _hears(self, schema: str, pid: int) -> None:
        self._changed |= schema == self.schema and pid != self._pid

    def now(self) -> float:
        return self._clock()

    def lock(self, name: str, owner: str) -> str | None:
        with self._in_use:
            return self._answer(lambda: self._locks.take(self._connection, name, owner))

    def unlock(self, name: str) -> None:
        with self._in_use:
            self._answer(lambda: self._locks.give_up(self._connection, name))

    def lock_owner(self, name: str) -> str | None:
        with self._in_use:
            return self._answer(lambda: self._locks.owner(self._connection, name))

    def close(self) -> None:
        with self._in_use:
            if not self._connection.closed:
                if self._session.number:
                    self._mark.set(self._connection)
                with suppress(psycopg.Error):  # the server frees them as well, but a moment later
                    command(self._connection, f"{self._session.to_forget()} select pg_advisory_unlock_all()")
            self._connection.close()
            self._over = self._over or StoreError("the store is closed")

    # The connection

    def _connected(self) -> Connection:
        connection = connect(self._url, readonly=self._readonly)
        connection.add_notify_handler(lambda told: self._hears(told.payload, told.pid))
        self._set_clock(connection)
        return connection

    def _set_clock(self, connection: Connection) -> None:
        asked_s = self._server_clock.elapsed()
        found = command(connection, "select extract(epoch from clock_timestamp())::double precision as now")
        self._server_clock.set(found["now"], asked_s)

    def _ready(self) -> None:
        """Make sure that there is a connection, outside of a transaction. Raises StoreFenced, StoreBusy."""
        if self._over is not None:
            raise self._over
        if self._connection.closed and not (self._depth or self._reading):
            self._reconnect(allowed=self._session.number)

    def _answer(self, ask: Callable[[], Any]) -> Any:
        """Ask the server; again on a new connection where this one is cut, after all that the open transaction has done."""
        with self._clear_errors():
            self._ready()
            while True:
                try:
                    return ask()
                except psycopg.Error as error:
                    if not self._is_cut(error):
                        raise
                self._do_again()

    def _do_again(self) -> None:
        """Make a new connection, and bring it to where the one that was cut had been. Raises StoreCut, StoreFenced."""
        self._unsent.clear()
        while True:
            if self._connection.closed:
                self._reconnect(allowed=self._session.number)
            if not (self._depth or self._reading):
                return
            try:
                command(self._connection, _SNAPSHOT if self._reading else f"{self._begin_text}; {_NUMBER_ON}")
                self._replay.run(self._executed)
                return
            except StoreCut:
                if self._reading:  # nothing was done on what was read
                    raise cut(self._url) from None
                raise
            except psycopg.Error as error:
                if not self._is_cut(error):
                    raise

    def _executed(self, text: str, values: Sequence[Any]) -> Any:
        return (
            self._fetched(text, list(values)) if values or text[:9] != "savepoint" else command(self._connection, text)
        )

    def _reconnect(self, *, allowed: int) -> None:
        """Make a new connection, and take the locks again.

        Args:
            allowed: the number that the session's last transaction may have besides the known one.
        """
        former_pids = {self._pid}
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            self._connection = connection = connected_again(self._connected, deadline, self._url)
            self._pid = connection.info.backend_pid
            self._changed = True
            try:
                self._settle(connection, allowed, former_pids)
                return
            except (StoreFenced, StoreRestored) as error:
                self._over = error
                raise
            except psycopg.Error as error:  # it may be cut again at once
                if not self._is_cut(error):
                    raise
            former_pids.add(self._pid)

    def _settle(self, connection: Connection, allowed: int, former_pids: Collection[int]) -> None:
        """Raises StoreRestored, StoreFenced."""
        if self._session.number and self._session.stored(connection) not in (self._session.number, allowed):
            raise StoreRestored(
                f"the store {self.where} is older than what this process wrote to it: the server was restored from a backup. "
                "Nothing was changed; restore a newer backup"
            )
        self._locks.retake(connection, former_pids)

    def _fetched(self, text: str, values: list[Any]) -> list[Row]:
        if self._unsent:
            self._unsent.add(text, values)
            cursor = self._unsent.send(self._connection)
            assert cursor is not None
        else:
            cursor = self._connection.execute(text.encode(), values)
        return [] if cursor.description is None else list(cursor.fetchall())

    def _flush(self) -> None:
        """Send what was not waited for yet."""
        self._ready()
        if self._unsent:
            self._answer(lambda: self._unsent.send(self._connection))

    @contextmanager
    def _clear_errors(self) -> Generator[None]:
        try:
            yield
        except UnicodeEncodeError as error:
            raise InputError(f"{error.object!r} is not Unicode text") from error
        except psycopg.Error as error:
            raise self._clear(error) from error

    def _clear(self, error: psycopg.Error) -> Exception:
        """What is raised in place of an error of the driver."""
        return cut(self._url) if self._is_cut(error) else clear_error(error, self._url) or error

    def _is_cut(self, error: psycopg.Error) -> bool:
        """Whether the connection is of no use any more. A server that shuts down says so before it is gone."""
        if self._connection.closed or isinstance(error, SHUT_DOWN):
            self._connection.close()
        return self._connection.closed
