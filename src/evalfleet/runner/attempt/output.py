"""One output stream of a task: from its pipe, redacted, into a capped log."""

from __future__ import annotations

import errno
import os

from ..redact import RedactedStream, Redactor

CAP_BYTES = 64 << 20
CHUNK = 1 << 16
DRAIN_READS = 64  # a pipe holds at most 1 MiB; what comes later comes from outside the tree
TAIL_BYTES = 16384
LINE_CHARACTERS = 1500


class OutputLog:
    """Owns the read end of the pipe. The log appears with the first byte."""

    def __init__(self, fd: int, path: str, redactor: Redactor, cap: int = CAP_BYTES) -> None:
        os.set_blocking(fd, False)
        self.fd = fd
        self.disk_full = False
        self._path = path
        self._stream = RedactedStream(redactor) if redactor else None
        self._left = cap
        self._cap = cap
        self._log = -1
        self._failed = False
        self._tail = b""

    def read(self) -> int | None:
        """Read one chunk. Returns its size, 0 at the end, None if there is nothing now."""
        try:
            chunk = os.read(self.fd, CHUNK)
        except BlockingIOError:
            return None
        except InterruptedError:
            return None
        self._take(self._stream.feed(chunk) if self._stream and chunk else chunk)
        return len(chunk)

    def drain(self) -> int:
        """Read what the dead process tree left in the pipe, and close it. Returns the number of bytes."""
        total = 0
        for _ in range(DRAIN_READS):
            count = self.read()
            if not count:
                break
            total += count
        if self._stream:
            self._take(self._stream.flush())
        os.close(self.fd)
        if self._log >= 0:
            os.close(self._log)
        return total

    def tail(self) -> bytes:
        return self._tail[-TAIL_BYTES:]

    def _take(self, data: bytes) -> None:
        if not data:
            return
        self._tail = data[-2 * TAIL_BYTES :] if len(data) >= TAIL_BYTES else (self._tail + data)[-2 * TAIL_BYTES :]
        if self._left < 0 or self._failed:
            return
        if len(data) > self._left:
            marker = b"\n[evalfleet: the log is capped at %d bytes; the rest was thrown away]\n" % self._cap
            data = data[: self._left] + marker
            self._left = -1  # said so
        else:
            self._left -= len(data)
        try:
            self._write(data)
        except OSError as error:
            # the task must not block or die because its log cannot be kept
            self._failed = True
            self.disk_full = error.errno in (errno.ENOSPC, errno.EDQUOT)

    def _write(self, data: bytes) -> None:
        if self._log < 0:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
            self._log = os.open(self._path, flags, 0o600)
        while data:
            data = data[os.write(self._log, data) :]


def last_lines(data: bytes, lines: int = 20, characters: int = 6000) -> str:
    """The end of a log as text.

    Before the last `lines`, up to as many unindented lines are kept: in a long traceback with its causes, those are the exceptions
    without their frames. A very long line keeps its start and its end. If the text is still too long, whole lines are dropped from
    the front.
    """
    said = [_shortened(line.rstrip("\r")) for line in data.decode("utf-8", "replace").strip("\n").split("\n")]
    older = [line for line in said[:-lines] if line and not line[0].isspace()]
    kept = older[-lines:] + said[-lines:]
    room = characters - len(kept[-1])
    first = len(kept) - 1
    while first > 0 and len(kept[first - 1]) + 1 <= room:
        first -= 1
        room -= len(kept[first]) + 1
    return "\n".join(kept[first:])


def _shortened(line: str) -> str:
    return (
        line if len(line) <= LINE_CHARACTERS else line[: LINE_CHARACTERS // 2] + " … " + line[-LINE_CHARACTERS // 2 :]
    )
