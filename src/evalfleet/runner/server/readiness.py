"""Asks a starting server whether it is ready, in its own thread."""

from __future__ import annotations

import http.client
import socket
import threading
import urllib.parse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

EVERY_S = 0.1
ANSWER_S = 5.0  # a server that loads may accept, and answer late


class ReadinessProbe:
    """Asks until an answer is 2xx; then `ready` is set and `on_ready` called. `last` describes the last answer."""

    def __init__(self, url: str, on_ready: Callable[[], object]) -> None:
        self.ready = threading.Event()
        self.last = "it was never asked"
        self._over = threading.Event()
        self._url = url
        self._on_ready = on_ready
        threading.Thread(target=self._ask, daemon=True).start()

    def end(self) -> None:
        self._over.set()

    def _ask(self) -> None:
        while not self._over.is_set():
            try:
                status = answer(self._url)
            except (OSError, http.client.HTTPException) as error:
                self.last = "%s does not answer (%s)" % (self._url, error or type(error).__name__)
            else:
                if 200 <= status < 300:
                    self.ready.set()
                    self._on_ready()
                    return
                self.last = "%s answers %d" % (self._url, status)
            self._over.wait(EVERY_S)


def answer(url: str) -> int:
    """The status of one GET, sent directly: a proxy from the environment cannot reach a server on this machine.

    Raises OSError, HTTPException.
    """
    parts = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=ANSWER_S)
    try:
        connection.request("GET", urllib.parse.urlunsplit(("", "", parts.path or "/", parts.query, "")))
        return connection.getresponse().status
    finally:
        connection.close()


def is_listened(url: str) -> bool:
    """Whether a program already accepts connections there."""
    parts = urllib.parse.urlsplit(url)
    try:
        socket.create_connection((parts.hostname or "", parts.port or 80), timeout=1.0).close()
    except OSError:
        return False
    return True
