"""One client connection: newline-delimited JSON in, answers and events out, in bounded memory."""

from __future__ import annotations

import socket
import time
from collections import deque

from . import jsontext
from .attempt.spec import RequestRefused
from .loop import READ, WRITE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Union

    from .attempt.journal import Journal
    from .loop import Loop

    # the fields, or what calls back with them, now or later
    Answer = Union[Dict[str, Any], Callable[[Callable[[Dict[str, Any]], None]], None]]

PROTOCOL = 1
MAX_LINE = 16 << 20
READ_BYTES = 1 << 18
ROOM_BYTES = 1 << 20  # above that no event is pushed and no further request is served until the client has read
STUCK_S = 60.0


class EventFeed:
    """Sends one attempt's journal to one connection: in order, without gaps, each event once.

    A feed that is up to date sends new lines directly; one that fell behind reads the journal when the client can take more.
    """

    def __init__(self, connection: ClientConnection, journal: Journal, offset: int) -> None:
        self.connection = connection
        self._journal = journal
        self._offset = offset

    def push(self, line: bytes) -> None:
        """A line was appended to the journal."""
        if self._offset == self._journal.size - len(line) and self.connection.has_room():
            self._offset = self._journal.size
            self.connection.send(line)
        else:
            self.connection.behind.add(self)

    def catch_up(self) -> bool:
        """Send as much as fits. True if nothing is left, for now or because the journal is gone."""
        while self.connection.has_room():
            try:
                data = self._journal.read(self._offset)
            except OSError:
                return True
            if not data:
                return True
            self._offset += len(data)
            self.connection.send(data)
        return False


class ClientConnection:
    """Owns its socket. `serve` gets one request at a time and returns the answer's fields or raises `RequestRefused`."""

    def __init__(
        self,
        sock: socket.socket,
        loop: Loop,
        serve: Callable[[ClientConnection, dict[str, Any]], Answer],
        closed: Callable[[ClientConnection], None],
        number: int,
    ) -> None:
        sock.setblocking(False)
        self.number = number
        self.feeds: dict[str, EventFeed] = {}
        self.behind: set[EventFeed] = set()
        self.wants_notices = False  # a controller that does not know them would take one for a broken answer
        self.after_answer: list[Callable[[], None]] = []  # what a request starts, once its answer is on its way
        self._sock = sock
        self._fd = sock.fileno()
        self._loop = loop
        self._serve = serve
        self._closed = closed
        self._open = True
        self._partial: list[bytes] = []
        self._partial_size = 0
        self._requests: deque[bytes] = deque()
        self._out: list[bytes] = []
        self._out_size = 0
        self._mask = READ
        self._moved_at = time.monotonic()
        loop.watch(self._fd, READ, self._ready)

    def has_room(self) -> bool:
        return self._open and self._out_size < ROOM_BYTES

    def send(self, data: bytes) -> None:
        """Queue bytes; they are sent before the loop sleeps."""
        if not self._out:
            self._moved_at = time.monotonic()
        self._out.append(data)
        self._out_size += len(data)

    def close(self) -> None:
        if self._open:
            self._open = False
            self._loop.unwatch(self._fd)
            self._sock.close()
            self._out.clear()
            self._requests.clear()
            self._closed(self)

    def flush(self) -> None:
        """Handle pending requests, write what can be written, and return what to wait for."""
        while self._open:
            self._work()
            self._refill()
            if not self._out or not self._write() or self._out:
                break
        if not self._open:
            return
        mask = (WRITE if self._out else 0) | (0 if self._requests else READ)
        if mask != self._mask:
            self._mask = mask
            self._loop.rewatch(self._fd, mask, self._ready)
        if self._out and time.monotonic() - self._moved_at > STUCK_S:
            self.close()

    @property
    def blocked(self) -> bool:
        return bool(self._out)

    def _ready(self, mask: int) -> None:
        if mask & WRITE:
            self._write()
        if mask & READ and self._open and not self._requests:
            self._read()

    def _read(self) -> None:
        try:
            data = self._sock.recv(READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        if not data:
            self.close()
            return
        lines = data.split(b"\n")
        if len(lines) > 1:
            self._partial.append(lines[0])
            lines[0] = b"".join(self._partial)
            self._partial = []
            self._partial_size = 0
        rest = lines.pop()
        if rest:
            self._partial.append(rest)
            self._partial_size += len(rest)
        if self._partial_size > MAX_LINE:
            self.close()
            return
        self._requests.extend(line for line in lines if line)
        self._work()

    def _work(self) -> None:
        while self._requests and self.has_room():
            self._request(self._requests.popleft())

    def _request(self, line: bytes) -> None:
        try:
            message = jsontext.as_object(jsontext.parse(line))
            if message is None or "id" not in message:
                raise ValueError("a request must be an object with an id")
        except ValueError as error:
            # who talks garbage cannot be understood again
            self.send(jsontext.encode({"id": None, "ok": False, "error": "bad_request", "message": str(error)}))
            self._write()
            self.close()
            return
        answer: dict[str, Any] = {"id": message["id"], "ok": True}
        try:
            fields = self._serve(self, message)
            if callable(fields):
                fields(lambda found: self._answer_late(dict(answer, **found)))
                return
            answer.update(fields)
        except RequestRefused as refusal:
            answer.update(ok=False, error=refusal.error, message=refusal.message, **refusal.fields)
        except OSError as error:
            answer.update(ok=False, error="io_error", message=str(error), errno=error.errno)
        except BaseException:
            self.close()  # rather no connection than a request without an answer
            raise
        self.send(jsontext.encode(answer))
        started, self.after_answer = self.after_answer, []
        for call in started:
            call()

    def _answer_late(self, answer: dict[str, Any]) -> None:
        if self._open:
            self.send(jsontext.encode(answer))

    def _refill(self) -> None:
        for feed in list(self.behind):
            if not self.has_room():
                return
            if feed.catch_up():
                self.behind.discard(feed)

    def _write(self) -> bool:
        """Send what is queued. False if the socket accepts nothing now."""
        data = b"".join(self._out)
        try:
            count = self._sock.send(data) if data else 0
        except (BlockingIOError, InterruptedError):
            count = 0
        except OSError:
            self.close()
            return False
        rest = data[count:]
        self._out = [rest] if rest else []
        self._out_size = len(rest)
        if count or not rest:
            self._moved_at = time.monotonic()
        return count > 0
