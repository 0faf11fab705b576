"""Locks on files. The kernel frees them when their process ends, however it ends."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

from evalfleet.errors import StoreUnwritable

# A waiter asks again after at most this long. Short, because a busy writer leaves the lock free only for moments.
_PAUSE_S = 0.005


class FileLock:
    """An exclusive lock on one file, with a text in it that says who holds it.

    Makes the file. Raises StoreUnwritable.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise StoreUnwritable(
                f"cannot write {path}: {error.strerror}; choose another home with --home DIR"
            ) from error

    def acquire(self, wait_s: float) -> bool:
        """Whether this process holds the lock now; waits up to `wait_s` for it."""
        deadline = time.monotonic() + wait_s
        pause = 0.0002
        while not _locked(self._file, fcntl.LOCK_EX):
            if time.monotonic() >= deadline:
                return False
            time.sleep(pause)
            pause = min(pause * 2, _PAUSE_S)
        return True

    def release(self) -> None:
        fcntl.flock(self._file, fcntl.LOCK_UN)

    def sign(self, text: str) -> None:
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, text.encode(errors="replace"), 0)

    def signature(self) -> str:
        return os.pread(self._file, 500, 0).decode(errors="replace").strip()

    def close(self) -> None:
        os.close(self._file)


def holder(path: Path) -> str | None:
    """What the holder of the lock signed, "" if nothing; None if it is free.

    Asks by holding it shared for a moment, so a process that wants it must be ready to try twice.
    """
    try:
        file = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreUnwritable(f"cannot read {path}: {error.strerror}; check its permissions") from error
    try:
        if _locked(file, fcntl.LOCK_SH):
            return None
        return os.pread(file, 500, 0).decode(errors="replace").strip()
    finally:
        os.close(file)


def _locked(file: int, mode: int) -> bool:
    try:
        fcntl.flock(file, mode | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
