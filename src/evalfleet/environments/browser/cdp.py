"""The Chrome DevTools protocol over a pair of pipes: NUL-delimited JSON, no port, no dependency.

One thread, one caller: while a call waits for its answer, the events that arrive meanwhile are handed to their
handlers. Every wait has a limit, for reading and for writing, so that a browser that hangs cannot hang its caller.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import time
from collections.abc import Callable
from typing import Any

from evalfleet.errors import BrowserError, BrowserGone, BrowserRefused, BrowserTimeout

_BLOCK = 1 << 18
_SHOWN = 200  # characters of the browser's output in a message

Handler = Callable[[dict[str, Any]], None]


class Connection:
    """A connection to one browser. Owns both descriptors.

    Args:
        read_fd: where the browser's messages come from.
        write_fd: where ours go.
        timeout_s: the limit of a call that names none.
    """

    def __init__(self, read_fd: int, write_fd: int, *, timeout_s: float = 30.0) -> None:
        self._read_fd = read_fd
        self._write_fd = write_fd
        self._timeout_s = timeout_s
        self._last_id = 0
        self._received = bytearray()
        self._handlers: dict[str, Handler] = {}
        self._answers: dict[int, dict[str, Any]] = {}
        self._awaited: set[int] = set()
        os.set_blocking(write_fd, False)
        os.set_blocking(read_fd, False)

    def on(self, event: str, handler: Handler) -> None:
        """Call `handler` with the parameters of each such event; it may `post` but not `call`."""
        self._handlers[event] = handler

    def call(
        self,
        method: str,
        params: dict[str, Any] | None = None,
        *,
        session: str | None = None,
        timeout_s: float | None = None,
    ) -> dict[str, Any]:
        """Ask and return the answer's result.

        Raises:
            BrowserRefused: the browser answered with an error.
            BrowserTimeout: no answer in time.
            BrowserGone: the other end is closed.
        """
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        deadline = time.monotonic() + limit_s
        number = self._send(method, params, session, deadline)
        self._awaited.add(number)
        try:
            self._pump(lambda: number in self._answers, deadline, f"{method} was not answered within {limit_s:g} s")
            answer = self._answers.pop(number)
        finally:
            self._awaited.discard(number)
        if "error" in answer:
            raise BrowserRefused(f"{method}: {str(answer['error'].get('message', answer['error']))[:_SHOWN]}")
        result: dict[str, Any] = answer.get("result", {})
        return result

    def post(self, method: str, params: dict[str, Any] | None = None, *, session: str | None = None) -> None:
        """Send a message and ignore the answer."""
        self._send(method, params, session, time.monotonic() + self._timeout_s)

    def wait(self, condition: Callable[[], bool], what: str, *, timeout_s: float | None = None) -> None:
        """Handle events until the condition holds. Raises BrowserTimeout or BrowserGone."""
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        self._pump(condition, time.monotonic() + limit_s, f"waited {limit_s:g} s for {what}")

    def close(self) -> None:
        for fd in (self._read_fd, self._write_fd):
            with contextlib.suppress(OSError):
                os.close(fd)
        self._read_fd = self._write_fd = -1

    def _send(self, method: str, params: dict[str, Any] | None, session: str | None, deadline: float) -> int:
        self._last_id += 1
        message: dict[str, Any] = {"id": self._last_id, "method": method, "params": params or {}}
        if session is not None:
            message["sessionId"] = session
        left = memoryview(json.dumps(message).encode() + b"\0")
        while left:
            try:
                left = left[os.write(self._write_fd, left) :]
            except BlockingIOError:
                _, ready, _ = select.select([], [self._write_fd], [], max(0.0, deadline - time.monotonic()))
                if not ready:
                    raise BrowserTimeout(f"{method}: the browser does not read its input") from None
            except OSError as error:
                raise BrowserGone(f"the browser is gone: {error.strerror}") from None
        return self._last_id

    def _pump(self, condition: Callable[[], bool], deadline: float, complaint: str) -> None:
        while not condition():
            ready, _, _ = select.select([self._read_fd], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise BrowserTimeout(complaint)
            self._receive()

    def _receive(self) -> None:
        try:
            block = os.read(self._read_fd, _BLOCK)
        except BlockingIOError:
            return
        except OSError as error:
            raise BrowserGone(f"the browser is gone: {error.strerror}") from None
        if not block:
            raise BrowserGone
        self._received += block
        if b"\0" not in block:
            return
        *messages, rest = self._received.split(b"\0")
        self._received = bytearray(rest)
        for message in messages:
            self._dispatch(message)

    def _dispatch(self, text: bytes | bytearray) -> None:
        try:
            message: dict[str, Any] = json.loads(text)
        except ValueError:
            raise BrowserError(f"the browser sent invalid JSON: {bytes(text[:_SHOWN])!r}") from None
        number = message.get("id")
        if number is None:
            handler = self._handlers.get(message.get("method", ""))
            if handler is not None:
                handler(message.get("params", {}))
        elif number in self._awaited:  # answers to posts and to calls that timed out are dropped
            self._answers[number] = message
