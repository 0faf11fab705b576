"""A chat endpoint on loopback that does what a script says: answers like a model, or misbehaves. Real HTTP.

::

    with ChatServer(script(refusal(429, retry_after="1"), completion('{"actions": [], "done": true}'))) as server:
        ...  # ask server.url
"""

from __future__ import annotations

import json
import ssl
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, cast

from msgspec import Struct

_GIVE_UP_S = 60.0  # of an answer that never ends, where nobody stops the server


class Asked(Struct, frozen=True, kw_only=True):
    """A request as it came."""

    at: float  # monotonic
    path: str
    headers: dict[str, str]  # with names in small letters
    body: dict[str, Any]

    @property
    def text(self) -> str:
        """What the last message says."""
        content = self.body["messages"][-1]["content"]
        if isinstance(content, str):
            return content
        return "".join(part.get("text", "") for part in cast("list[dict[str, Any]]", content))

    @property
    def images(self) -> list[str]:
        """The addresses of all images."""
        found: list[str] = []
        for message in self.body["messages"]:
            if isinstance(message["content"], list):
                parts = cast("list[dict[str, Any]]", message["content"])
                found += [part["image_url"]["url"] for part in parts if part["type"] == "image_url"]
        return found


class Caller:
    """The one who asked, for a behaviour to answer."""

    def __init__(self, handler: BaseHTTPRequestHandler, stopped: threading.Event) -> None:
        self._handler = handler
        self._stopped = stopped

    def begin(self, status: int, headers: dict[str, str]) -> None:
        self._handler.send_response(status)
        for name, value in headers.items():
            self._handler.send_header(name, value)
        self._handler.end_headers()

    def send(self, data: bytes) -> None:
        self._handler.wfile.write(data)
        self._handler.wfile.flush()

    def rest(self, seconds: float) -> bool:
        """Wait; whether the server goes on."""
        return not self._stopped.wait(seconds)


Behaviour = Callable[[Caller], None]
Mind = Callable[[Asked], Behaviour]


def raw(status: int, body: bytes, content_type: str = "application/json", **headers: str) -> Behaviour:
    """Answer with these bytes. A header `retry_after` is `retry-after`."""

    def behave(caller: Caller) -> None:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        caller.begin(status, {"Content-Type": content_type, "Content-Length": str(len(body)), **named})
        caller.send(body)

    return behave


def completion(text: str, tokens_in: int = 1000, tokens_out: int = 50) -> Behaviour:
    usage = {"prompt_tokens": tokens_in, "completion_tokens": tokens_out, "total_tokens": tokens_in + tokens_out}
    message = {"role": "assistant", "content": text}
    choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
    return raw(200, json.dumps({"object": "chat.completion", "choices": choices, "usage": usage}).encode())


def refusal(status: int, message: str = "refused", code: str | None = None, **headers: str) -> Behaviour:
    return raw(status, json.dumps({"error": {"message": message, "code": code}}).encode(), **headers)


def hang_up(caller: Caller) -> None:
    """Close the connection without a word."""


def cut(caller: Caller) -> None:
    """Promise more than is sent."""
    caller.begin(200, {"Content-Type": "application/json", "Content-Length": "1000"})
    caller.send(b'{"choices": [{"mess')


def trickle(caller: Caller) -> None:
    """Send a space now and then, for ever."""
    caller.begin(200, {"Content-Type": "application/json"})
    _slowly(caller, b" ")


def trickle_headers(caller: Caller) -> None:
    """Send the beginning of a header, letter by letter, for ever."""
    caller.send(b"HTTP/1.1 200 OK\r\nX-Long: ")
    _slowly(caller, b"x")


def _slowly(caller: Caller, letter: bytes) -> None:
    until = time.monotonic() + _GIVE_UP_S
    while caller.rest(0.05) and time.monotonic() < until:
        caller.send(letter)


def flood(caller: Caller) -> None:
    """Send without end, as fast as it is read."""
    caller.begin(200, {"Content-Type": "application/json"})
    until = time.monotonic() + _GIVE_UP_S
    while time.monotonic() < until:
        caller.send(b" " * (1 << 16))


def script(*behaviours: Behaviour) -> Mind:
    """Behave so, one after the other; the last for ever."""
    left = list(behaviours)
    lock = threading.Lock()

    def mind(_asked: Asked) -> Behaviour:
        with lock:
            return left.pop(0) if len(left) > 1 else left[0]

    return mind


class Bucket:
    """A mind that lets another answer so many requests a second, and refuses the rest with 429."""

    def __init__(self, mind: Mind, *, per_s: float, burst: int, told: bool = True) -> None:
        self._mind = mind
        self._per_s = per_s
        self._burst = burst
        self._told = told  # whether a refusal says how long to wait
        self._lock = threading.Lock()
        self._level = float(burst)
        self._at = time.monotonic()
        self.passed: list[float] = []
        self.refused: list[float] = []

    def __call__(self, asked: Asked) -> Behaviour:
        with self._lock:
            now = time.monotonic()
            self._level = min(self._burst, self._level + self._per_s * (now - self._at))
            self._at = now
            if self._level >= 1.0:
                self._level -= 1.0
                self.passed.append(now)
                return self._mind(asked)
            self.refused.append(now)
            wait = {"retry_after": f"{(1.0 - self._level) / self._per_s:.3f}"} if self._told else {}
            return refusal(429, "too many requests", "rate_limit_exceeded", **wait)


class ChatServer:
    """Serves on a free port of loopback while its context is open. `asked` is what came, in order."""

    def __init__(self, mind: Mind, *, tls: ssl.SSLContext | None = None) -> None:
        self.mind = mind
        self.asked: list[Asked] = []
        self._stopped = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._scheme = "https" if tls else "http"
        if tls is not None:
            # The handshake is left to the thread that reads: one that fails must not stop the server.
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self._server.server_port}/v1"

    def __enter__(self) -> ChatServer:
        self._thread.start()
        return self

    def __exit__(self, _kind: type[BaseException] | None, _e: BaseException | None, _t: TracebackType | None) -> None:
        self._stopped.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            timeout = _GIVE_UP_S

            def do_POST(self) -> None:
                body: dict[str, Any] = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                headers = {name.lower(): value for name, value in self.headers.items()}
                asked = Asked(at=time.monotonic(), path=self.path, headers=headers, body=body)
                server.asked.append(asked)
                with suppress(BrokenPipeError, ConnectionResetError):  # the one who asked has gone
                    server.mind(asked)(Caller(self, server._stopped))

            def log_message(self, format: str, *args: Any) -> None:
                pass

        return Handler
