"""The file to which a task appends its event lines."""

from __future__ import annotations

import os
import stat

from .. import jsontext
from ..redact import Redactor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MAX_LINE = 1 << 16
MAX_CLEAN_LINE = 4 * MAX_LINE  # as JSON, once names stand in the place of secrets
READ_BYTES = 1 << 20  # per look, so that a flood does not stop the other attempts
DRAIN_BYTES = 16 << 20
LINES_PER_S = 256
BYTES_PER_S = 1 << 20
BATCH_LINES = 64
BATCH_BYTES = 1 << 18
MAX_USD = 1e9
MAX_STEP = 1 << 53


class EventFile:
    """Follows the file by polling. Never blocks, follows no links, and tolerates any content."""

    def __init__(self, path: str, redactor: Redactor) -> None:
        self._path = path
        self._redactor = redactor
        self._fd = -1
        self._identity = (0, 0)
        self._offset = 0
        self._partial = b""
        self._skipping = False  # the rest of a line that was too long
        self._window = 0.0
        self._lines_left = LINES_PER_S
        self._bytes_left = BYTES_PER_S
        self.step: int | None = None
        self.usd = 0.0
        self.ready = False
        self.batch: list[dict[str, Any]] = []
        self.batch_bytes = 0
        self.batch_at = 0.0
        self.dropped = 0

    def poll(self, now: float, limit: int = READ_BYTES) -> int:
        """Read what was appended. Returns the number of event lines, which are kept in `batch`."""
        try:
            found = os.lstat(self._path)
        except OSError:
            return 0
        if not stat.S_ISREG(found.st_mode):
            return 0
        if self._identity != (found.st_dev, found.st_ino) and not self._open():
            return 0
        if found.st_size < self._offset:
            self._restart()
        count = 0
        while limit > 0 and found.st_size > self._offset:
            try:
                data = os.pread(self._fd, min(limit, READ_BYTES), self._offset)
            except OSError:
                return count
            if not data:
                return count
            self._offset += len(data)
            limit -= len(data)
            count += self._feed(data, now)
        return count

    def drain(self, now: float) -> int:
        """Read the file one last time; a last line without a newline counts too."""
        count = self.poll(now, DRAIN_BYTES)
        if self._partial:
            count += self._line(self._partial, now)
            self._partial = b""
        self.close()
        return count

    def take(self) -> dict[str, Any]:
        """Empty the batch into the fields of a progress event."""
        fields: dict[str, Any] = {"step": self.step, "cost_usd": round(self.usd, 9), "lines": self.batch}
        if self.dropped:
            fields["dropped"] = self.dropped
        self.batch, self.batch_bytes, self.dropped = [], 0, 0
        return fields

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _open(self) -> bool:
        try:
            fd = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return False
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            os.close(fd)
            return False
        self.close()
        self._fd = fd
        self._identity = (found.st_dev, found.st_ino)
        self._restart()
        return True

    def _restart(self) -> None:
        self._offset = 0
        self._partial = b""
        self._skipping = False

    def _feed(self, data: bytes, now: float) -> int:
        lines = (self._partial + data).split(b"\n")
        self._partial = lines.pop()
        count = 0
        for line in lines:
            if self._skipping:
                self._skipping = False
            else:
                count += self._line(line, now)
        if len(self._partial) > MAX_LINE:
            self._partial = b""
            if not self._skipping:
                self.dropped += 1
            self._skipping = True
        return count

    def _line(self, line: bytes, now: float) -> int:
        if not line.strip():
            return 0
        if len(line) > MAX_LINE:
            self.dropped += 1
            return 0
        try:
            event = jsontext.as_object(jsontext.parse(line))
        except ValueError:
            event = None
        if event is None:
            self.dropped += 1
            return 0
        event = self._redactor.value(event)
        self._note(event)
        if self._redactor and len(jsontext.encode(event)) > MAX_CLEAN_LINE:
            self.dropped += 1
        else:
            self._keep(event, len(line), now)
        return 1

    def _note(self, event: dict[str, Any]) -> None:
        step, usd = event.get("step"), event.get("cost_usd")
        if isinstance(step, int) and not isinstance(step, bool) and 0 <= step < MAX_STEP:
            self.step = step
        if isinstance(usd, (int, float)) and not isinstance(usd, bool) and 0 <= usd <= MAX_USD:
            self.usd += usd
        if event.get("ready") is True:
            self.ready = True

    def _keep(self, event: dict[str, Any], size: int, now: float) -> None:
        if now - self._window >= 1.0:
            self._window = now
            self._lines_left = LINES_PER_S
            self._bytes_left = BYTES_PER_S
        if self._lines_left <= 0 or self._bytes_left <= 0:
            self.dropped += 1
            return
        self._lines_left -= 1
        self._bytes_left -= size
        if not self.batch:
            self.batch_at = now
        self.batch.append(event)
        self.batch_bytes += size
