"""The numbered events of one attempt on disk. Line n is event n."""

from __future__ import annotations

import errno
import os

from .. import jsontext

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

FULL = frozenset((errno.ENOSPC, errno.EDQUOT))


class Journal:
    """Append-only; one write per event.

    If the disk is full, events wait in ``backlog`` (in order, as if written) until there is space.
    """

    def __init__(self, path: str, attempt: str, now: Callable[[], float], next_event: int = 0, size: int = 0) -> None:
        self.path = path
        self.attempt = attempt
        self._now = now
        self.size = size  # with the backlog, without what is held
        self.next = next_event
        self.backlog: list[bytes] = []
        self.error: OSError | None = None
        self._written = size
        self._held = b""
        self._fd = -1

    def create(self) -> None:
        """Open a new journal.

        Raises:
            OSError: it exists, or cannot be created.
        """
        self._fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def file(self) -> list[int]:
        """The identity of the file (device and inode): it survives a move, but not a copy."""
        found = os.fstat(self._fd)
        return [found.st_dev, found.st_ino]

    def resume(self) -> None:
        """Open the journal of a runner that died; anything after `size` is an incomplete line and is cut off."""
        self._fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW)
        os.ftruncate(self._fd, self.size)

    def append(self, kind: str, fields: dict[str, Any]) -> bytes:
        """Write one event and return its line. Does not raise if the disk is full: see `error`."""
        self.hold(kind, fields)
        return self.release()

    def hold(self, kind: str, fields: dict[str, Any]) -> None:
        """Write one event that readers do not see before `release`: it must be on disk first."""
        event = {"attempt": self.attempt, "event": self.next, "at": round(self._now(), 6), "type": kind}
        event.update(fields)
        self._held = jsontext.encode(event)
        self.backlog.append(self._held)
        self.flush()

    def release(self) -> bytes:
        """Make the held event visible, and return its line."""
        line, self._held = self._held, b""
        self.next += 1
        self.size += len(line)
        return line

    def flush(self) -> bool:
        """Write the backlog. True if nothing is left in it."""
        while self.backlog:
            line = self.backlog[0]
            try:
                count = os.write(self._fd, line)
                if count < len(line):
                    os.ftruncate(self._fd, self._written)  # whole lines only
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            except OSError as error:
                self.error = error
                return False
            self._written += count
            del self.backlog[0]
        return True

    @property
    def disk_full(self) -> bool:
        return self.error is not None and self.error.errno in FULL

    def sync(self) -> None:
        try:
            os.fsync(self._fd)
        except OSError as error:
            self.error = error

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def read(self, offset: int, limit: int = 1 << 18) -> bytes:
        """Whole lines from `offset`, about `limit` bytes and at least one line; empty at the end.

        Raises:
            OSError: the file is gone.
        """
        if offset >= self._written:
            waiting = b"".join(self.backlog)
            return waiting[offset - self._written : self.size - self._written]
        fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            while True:
                data = os.pread(fd, min(limit, min(self._written, self.size) - offset), offset)
                end = data.rfind(b"\n") + 1
                if end or not data:
                    return data[:end]
                limit *= 4
        finally:
            os.close(fd)

    def piece(self, offset: int, limit: int) -> bytes:
        """At most `limit` bytes from `offset`, including the backlog.

        Raises:
            OSError: the file is gone.
        """
        if offset >= self._written:
            return b"".join(self.backlog)[offset - self._written : self.size - self._written][:limit]
        fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            data = os.pread(fd, min(limit, min(self._written, self.size) - offset), offset)
        finally:
            os.close(fd)
        return data + self.piece(self._written, limit - len(data)) if data and len(data) < limit else data

    def offset_of(self, event: int) -> int:
        """The offset of event number `event`; the journal's size if there is no such event yet.

        Raises:
            OSError: the file is gone.
        """
        place = 0
        left = max(0, event)
        while left:
            data = self.read(place)
            if not data:
                return self.size
            lines = data.count(b"\n")
            if lines > left:
                position = -1
                for _ in range(left):
                    position = data.index(b"\n", position + 1)
                return place + position + 1
            left -= lines
            place += len(data)
        return place
