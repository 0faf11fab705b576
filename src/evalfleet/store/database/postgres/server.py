"""The way to a PostgreSQL server, and what its errors mean to a person."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any, TypeAlias

from evalfleet.errors import InputError, StoreBusy, StoreError, StoreForeign, StoreUnwritable

try:
    import psycopg
    from psycopg import errors
    from psycopg.conninfo import conninfo_to_dict
    from psycopg.rows import DictRow, dict_row
    from psycopg.types.numeric import FloatLoader, Int8Dumper
    from psycopg.types.string import StrDumper
except ImportError as error:
    raise InputError(
        "a store in PostgreSQL needs the package psycopg; install it: pip install 'evalfleet[postgres]'"
    ) from error

Connection: TypeAlias = "psycopg.Connection[DictRow]"

BUSY_S = 30.0
SHUT_DOWN = (
    errors.AdminShutdown,
    errors.CrashShutdown,
    errors.CannotConnectNow,
    errors.IdleInTransactionSessionTimeout,
)
CHANNEL = "evalfleet"  # of the notifications of commits, which hold the name of the schema
_CONNECT_S = 10
# A cut connection is noticed on both sides within about 10 s, and a stopped process does not keep others from writing for ever.
_SESSION = f"""
listen {CHANNEL};
set lock_timeout = '{BUSY_S:.0f}s';
set idle_in_transaction_session_timeout = '60s';
set tcp_keepalives_idle = 4;
set tcp_keepalives_interval = 2;
set tcp_keepalives_count = 3;
set tcp_user_timeout = '10s';
set synchronous_commit = on;
set standard_conforming_strings = on;
set jit = off;
set default_transaction_read_only = {{readonly}};
"""


def address(url: str) -> str:
    """Where a store lies, for a person: without a password. Raises InputError."""
    try:
        parts = conninfo_to_dict(url)
    except psycopg.Error as error:
        raise InputError(f"the store's address cannot be understood: {_line(error)}") from error
    host, port = parts.get("host") or "localhost", parts.get("port")
    return f"postgresql://{host}{f':{port}' if port else ''}/{parts.get('dbname') or ''}"


def refuse_password(url: str) -> None:
    """Raise InputError: an address is kept in files and shown, so that it may hold no password."""
    address(url)
    if conninfo_to_dict(url).get("password"):
        raise InputError(
            "the store's address holds a password; leave it out, and give it in PGPASSWORD or in a file ~/.pgpass"
        )


def connect(url: str, *, readonly: bool) -> Connection:
    """A connection on which every statement is a transaction of its own. Raises psycopg.Error."""
    connection = psycopg.Connection[DictRow].connect(
        url,
        autocommit=True,
        row_factory=dict_row,
        cursor_factory=psycopg.RawCursor[DictRow],
        prepare_threshold=0,
        connect_timeout=_CONNECT_S,
        client_encoding="utf8",
        application_name="evalfleet",
        keepalives_idle=4,
        keepalives_interval=2,
        keepalives_count=3,
        tcp_user_timeout=10_000,
    )
    try:
        connection.server_cursor_factory = psycopg.RawServerCursor[DictRow]
        # One type for each kind of value, so that a statement is prepared once.
        connection.adapters.register_dumper(int, Int8Dumper)
        connection.adapters.register_dumper(str, StrDumper)
        connection.adapters.register_loader("numeric", FloatLoader)
        connection.prepared_max = 1000
        command(connection, _SESSION.format(readonly="on" if readonly else "off"))
    except BaseException:
        connection.close()
        raise
    return connection


def connected_again(connected: Callable[[], Connection], deadline: float, url: str) -> Connection:
    """A new connection in place of one that was cut, as soon as the server takes one. Raises StoreBusy."""
    pause_s = 0.05
    while True:
        try:
            return connected()
        except psycopg.Error as error:
            if time.monotonic() > deadline:
                raise cut(url) from error
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, 1.0)


def command(connection: Connection, text: str) -> Any:
    """Execute statements without values in one round trip; returns the first row of the last one that has any."""
    cursor = connection.execute(text.encode(), prepare=False)
    found = None
    while True:
        if cursor.description is not None:
            found = cursor.fetchone()
        if not cursor.nextset():
            return found


def schema_of(connection: Connection, where: str) -> str:
    """The schema in which the store lies. Closes the connection and raises InputError where it cannot be used."""
    found = command(connection, "select current_schema() as schema, current_setting('server_encoding') as encoding")
    wrong = None
    if found["schema"] is None:
        wrong = "the user may use no schema in it; create one, or name one: ?options=-csearch_path%3DNAME"
    elif found["encoding"] != "UTF8":
        wrong = f"its encoding is {found['encoding']}; create it with: createdb --encoding UTF8 --template template0"
    if wrong is not None:
        connection.close()
        raise InputError(f"cannot use the store {where}: {wrong}")
    return found["schema"]


def unreachable(error: Exception, url: str) -> StoreError:
    """What a person should read where no connection could be made."""
    return StoreUnwritable(
        f"cannot use the store {address(url)}: {_line(error)}; check that the server runs and that its address and user are right"
    )


def cut(url: str) -> StoreBusy:
    return StoreBusy(f"the connection to the store {address(url)} was cut; nothing was changed")


def clear_error(error: psycopg.Error, url: str) -> StoreError | InputError | None:
    """What a person should read instead of `error`; None if it is a fault of our own."""
    where = address(url)
    match error:
        case (
            errors.LockNotAvailable()
            | errors.QueryCanceled()
            | errors.DeadlockDetected()
            | errors.SerializationFailure()
        ):
            return StoreBusy(f"the store {where} was busy for {BUSY_S:.0f} s: {_line(error)}; try again")
        case (
            errors.InsufficientPrivilege() | errors.ReadOnlySqlTransaction() | errors.DiskFull() | errors.OutOfMemory()
        ):
            return StoreUnwritable(f"cannot write to the store {where}: {_line(error)}; ask who runs the server")
        case errors.UndefinedTable() | errors.UndefinedColumn() | errors.UndefinedFunction():
            return StoreForeign(f"the store {where} was not made by this evalfleet: {_line(error)}")
        case errors.CharacterNotInRepertoire() | errors.UntranslatableCharacter():
            return InputError(f"the store {where} cannot hold a text: {_line(error)}")
        case _:
            return None


def _line(error: Exception) -> str:
    return re.sub(r"\s+", " ", str(error)).strip()
