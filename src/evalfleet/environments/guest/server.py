"""An environment served over HTTP, for agents in any language and for environments on another machine.

Requests are read by separate threads, but only the thread that calls `serve` uses the environment,
in the order of the requests. The protocol is described in docs/reference/guest-protocol.md.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import queue
import secrets
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any
from urllib.parse import parse_qs, urlsplit

from msgspec import Struct

from evalfleet.environments.base import Environment
from evalfleet.environments.guest import messages as words
from evalfleet.errors import EnvironmentFailed, EpisodeOver, EvalfleetError, InputError

_READ_S = 30.0  # for a request to arrive


class Answer(Struct, frozen=True):
    """What goes back: a body and what it is."""

    body: bytes
    kind: str = "application/json"


Route = Callable[[Mapping[str, str], bytes], Answer | Future[Answer]]
"""Makes the answer from a request's query and body, now or later; other requests are served meanwhile."""


_Call = tuple[Callable[[], Answer | Future[Answer]], Future[Answer | Future[Answer]]]


class Guest:
    """Serves one environment on the loopback interface, or on another address.

    Args:
        token: required in every request; a random one if it is None.
        more: further routes, such as {"GET /elements": …}, which go before the usual ones.
    """

    def __init__(
        self,
        environment: Environment,
        *,
        token: str | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        more: Mapping[str, Route] | None = None,
    ) -> None:
        self.token = token or secrets.token_urlsafe(24)
        self.routes: dict[str, Route] = {**_routes(environment), **(more or {})}
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._stopped = False
        self._door = threading.Lock()  # between `stop` and requests at that moment
        self._server = _Server((host, port), _Handler)
        self._server.guest = self
        self.address = f"http://{host}:{self._server.server_address[1]}"

    def __enter__(self) -> Guest:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        self._refuse_waiting()
        self._server.shutdown()
        self._server.server_close()

    def serve(self, *, until: Callable[[], bool] = lambda: False) -> None:
        """Serve requests on this thread until the condition holds after one of them, or until `stop`.

        Raises:
            Exception: an error other than EvalfleetError, so a bug. An EvalfleetError becomes the answer.
        """
        while not until():
            call = self._calls.get()
            if call is None:
                if self._stopped:
                    return
                continue
            do, future = call
            try:
                future.set_result(do())
            except EvalfleetError as error:
                future.set_exception(error)
            except BaseException as error:
                future.set_exception(EnvironmentFailed(f"{type(error).__name__}: {error}"))
                raise

    def wake(self) -> None:
        """Let `serve` check its condition. May be called from any thread."""
        self._calls.put(None)

    def stop(self) -> None:
        """End `serve` after the requests so far. May be called from any thread."""
        with self._door:
            self._stopped = True
        self.wake()

    def submit(self, do: Callable[[], Answer | Future[Answer]]) -> Answer:
        """Run a call on the serving thread and return its result. Raises EpisodeOver after the end."""
        future: Future[Answer | Future[Answer]] = Future()
        with self._door:
            if self._stopped:
                raise EpisodeOver
            self._calls.put((do, future))
        answer = future.result()
        return answer if isinstance(answer, Answer) else answer.result()

    def _refuse_waiting(self) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                call = self._calls.get_nowait()
                if call is not None:
                    call[1].set_exception(EpisodeOver())


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    guest: Guest

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that disconnect."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server  # pyright: ignore[reportIncompatibleVariableOverride]
    protocol_version = "HTTP/1.1"
    server_version = "evalfleet-guest"
    sys_version = ""
    timeout = _READ_S

    def do_GET(self) -> None:
        self._handle("GET")

    def do_POST(self) -> None:
        self._handle("POST")

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not logged."""

    def _handle(self, method: str) -> None:
        self.close_connection = True
        guest = self.server.guest
        address = urlsplit(self.path)
        query = {name: values[-1] for name, values in parse_qs(address.query, keep_blank_values=True).items()}
        given = self.headers.get("Authorization", "")
        if not hmac.compare_digest(given.encode("utf-8", "replace"), f"Bearer {guest.token}".encode()):
            self._refuse(401, "token", "the header Authorization must be: Bearer and the guest's token")
            return
        route = guest.routes.get(f"{method} {address.path}")
        if route is None:
            self._refuse(404, "path", f"there is no {method} {address.path}")
            return
        body = self._body(words.LARGEST_UPLOAD if address.path == "/setup/upload" else words.LARGEST_BODY)
        if body is None:
            return
        try:
            answer = guest.submit(lambda: route(query, body))
        except EvalfleetError as error:
            status, kind = words.status_of(error)
            self._refuse(status, kind, str(error))
        else:
            self._send(200, answer)

    def _body(self, limit: int) -> bytes | None:
        """Return the request's body; None if it was refused."""
        length = self.headers.get("Content-Length", "0")
        if self.headers.get("Transfer-Encoding") or not length.isdecimal():
            self._refuse(411, "size", "the header Content-Length is missing")
        elif int(length) > limit:
            self._refuse(413, "size", f"the body has more than {limit} bytes")
        else:
            body = self.rfile.read(int(length))
            return body if len(body) == int(length) else None
        return None

    def _refuse(self, status: int, kind: str, error: str) -> None:
        self._send(status, as_json({"error": error, "kind": kind}))

    def _send(self, status: int, answer: Answer) -> None:
        with contextlib.suppress(OSError):  # the client is gone
            self.send_response(status)
            self.send_header("Content-Type", answer.kind)
            self.send_header("Content-Length", str(len(answer.body)))
            self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(answer.body)


def as_json(value: Any) -> Answer:
    return Answer(json.dumps(value).encode())


def _routes(environment: Environment) -> dict[str, Route]:
    def perform(_query: Mapping[str, str], body: bytes) -> Answer:
        environment.perform(words.action_of(body))
        return as_json({})

    def execute(_query: Mapping[str, str], body: bytes) -> Answer:
        order = words.order_of(body)
        done = environment.execute(order.command, stdin=order.stdin, env=order.env, timeout_s=order.timeout_s)
        return as_json(words.executed_to_json(done))

    def launch(_query: Mapping[str, str], body: bytes) -> Answer:
        environment.launch(words.order_of(body).command)
        return as_json({})

    def read(query: Mapping[str, str], _body: bytes) -> Answer:
        return Answer(environment.read(_path(query)), "application/octet-stream")

    def write(query: Mapping[str, str], body: bytes) -> Answer:
        environment.write(_path(query), body)
        return as_json({})

    def reset(_query: Mapping[str, str], _body: bytes) -> Answer:
        environment.reset()
        return as_json({})

    return {
        "GET /probe": lambda _query, _body: as_json(words.probe_to_json(environment.probe())),
        "GET /screenshot": lambda _query, _body: Answer(environment.screenshot(), "image/png"),
        "GET /file": read,
        "POST /input": perform,
        "POST /execute": execute,
        "POST /setup/launch": launch,
        "POST /setup/upload": write,
        "POST /setup/reset": reset,
    }


def _path(query: Mapping[str, str]) -> str:
    if not query.get("path"):
        raise InputError("the path is missing: …?path=notes/a.txt")
    return query["path"]
