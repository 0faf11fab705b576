"""How far the events of a run were sent: a small file beside the run, under a lock that one process holds."""

from __future__ import annotations

import fcntl
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

FILE = "telemetry.json"


class Cursor:
    """Used by one thread."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE
        self._lock: int | None = None
        self.after = 0  # number of the last event that was sent
        self.is_done = False  # the run is over, and all of it was sent

    def take(self) -> bool:
        """Take the lock and read. False: another process has it. Raises OSError."""
        if self._lock is not None:
            return True
        self._path.parent.mkdir(parents=True, exist_ok=True)
        lock = os.open(self._path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            return False
        self._lock = lock
        with suppress(OSError, ValueError, TypeError, KeyError):
            told: dict[str, Any] = json.loads(self._path.read_text("utf-8"))
            self.after, self.is_done = int(told["after"]), bool(told["done"])
        if not self._path.exists():  # so that the run is known to be unfinished, even if nothing of it is ever taken
            self._write()
        return True

    def move(self, after: int, *, done: bool) -> None:
        """Raises OSError."""
        if (after, done) != (self.after, self.is_done):
            self.after, self.is_done = after, done
            self._write()

    def _write(self) -> None:
        partial = self._path.with_suffix(".partial")
        partial.write_text(json.dumps({"after": self.after, "done": self.is_done}), "utf-8")
        partial.replace(self._path)

    def close(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def unfinished(runs: Path) -> list[str]:
    """Runs of which something was sent, and not all; the newest first."""
    found: list[tuple[float, str]] = []
    for path in runs.glob(f"*/{FILE}"):
        with suppress(OSError, ValueError, TypeError, KeyError):
            if not json.loads(path.read_text("utf-8"))["done"]:
                found.append((path.stat().st_mtime, path.parent.name))
    return [run for _, run in sorted(found, reverse=True)]
