"""The SQLite file on the disk: where it lies, whether it is whole, and what its errors mean to a person."""

from __future__ import annotations

import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from evalfleet.errors import StoreBusy, StoreCorrupt, StoreError, StoreUnwritable

FILE = "evalfleet.db"

_LEAST_PAGE = 512  # the file is whole pages, and those are multiples of this

_REMEDY = "restore it from a backup, or move it away (the files under runs/ stay) and start anew"


def damage(home: Path) -> str | None:
    """What is wrong with the home's database as a file; None if nothing is, or if there is none.

    An empty file would otherwise be taken for new, and its runs forgotten, and SQLite does not see that half a page is
    missing; everything else it finds by itself. The file is only looked at from outside and never opened here: closing
    it would drop the locks that a connection of this process has on it (POSIX locks belong to the process), another
    process would then take itself for the last one and remove the log under us. The answer may be wrong while another
    process writes: the caller asks again under the write lock.

    Raises StoreUnwritable.
    """
    path, runs = home / FILE, home / "runs"
    try:
        size = path.stat().st_size
        # With a log beside it the file alone proves nothing: the next checkpoint completes what a killed one left.
        if size % _LEAST_PAGE and not _has_log(path):
            return f"{path} is cut off: {_REMEDY}"
        if size > 0 or not runs.is_dir() or not any(runs.iterdir()):
            return None
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreUnwritable(f"cannot read {path}: {error.strerror}; check it, or use --home DIR") from error
    return f"{path} is empty but {runs} is not: {_REMEDY}"


def _has_log(path: Path) -> bool:
    try:
        return path.with_name(path.name + "-wal").stat().st_size > 0
    except FileNotFoundError:
        return False


def clear_error(error: sqlite3.Error, home: Path) -> StoreError | None:
    """What a person should read instead of `error`; None if it is a fault of our own."""
    path, code = home / FILE, getattr(error, "sqlite_errorcode", 0) & 0xFF
    match code:
        case sqlite3.SQLITE_FULL:
            return StoreUnwritable(f"cannot write {path}: {error}; free some space, or use --home DIR")
        case sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM | sqlite3.SQLITE_IOERR:
            return StoreUnwritable(f"cannot use {path}: {error}; check its permissions and its disk, or use --home DIR")
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return StoreBusy(f"{path} is locked by another program: {error}; close that program and try again")
        case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB:
            return StoreCorrupt(f"{path} is damaged ({error}): {_REMEDY}")
        case _ if str(error).startswith("Could not decode to UTF-8"):  # Python's own, without a code
            return StoreCorrupt(f"{path} is damaged (a text in it is not UTF-8): {_REMEDY}")
        case _:
            return None


def garbled(error: UnicodeDecodeError, home: Path) -> StoreCorrupt:
    """SQLite's complaint about a damaged schema quotes it, and what it quotes may be no text."""
    return StoreCorrupt(f"{home / FILE} is damaged (its schema is not UTF-8: {error.reason}): {_REMEDY}")


@contextmanager
def clear_errors(home: Path) -> Generator[None]:
    """While a database is opened, every error of SQLite is about the file."""
    try:
        yield
    except UnicodeDecodeError as error:
        raise garbled(error, home) from error
    except sqlite3.Error as error:
        raise clear_error(error, home) or StoreCorrupt(f"cannot use {home / FILE} ({error}): {_REMEDY}") from error
