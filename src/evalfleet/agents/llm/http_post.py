"""One HTTP POST with limits on connecting, silence, the whole call and the size of the response.

The standard library does it, so that a worker needs no extra: of what a client library offers, an attempt with one call
at a time would use nothing but the limits, and these it sets itself. The call runs in a thread of its own, because
looking a name up, or headers that trickle, can be limited in no other way; the caller goes on at the deadline, and
hears a tick meanwhile.
"""

from __future__ import annotations

import http.client
import ssl
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any
from urllib.error import HTTPError, URLError

from msgspec import Struct

LARGEST = 8 << 20
TICK_S = 10.0
_CONNECT_S = 15.0
_CHUNK = 1 << 16


class Response(Struct, frozen=True, kw_only=True):
    status: int
    headers: Mapping[str, str]  # with names in small letters
    body: bytes


class NoAnswer(Exception):
    """There was no complete response; the text says why. `lasting` if a retry cannot help."""

    def __init__(self, said: str, *, lasting: bool = False) -> None:
        super().__init__(said)
        self.lasting = lasting


def post(
    url: str,
    body: bytes,
    headers: Mapping[str, str],
    *,
    timeout_s: float,
    tick: Callable[[], None] = lambda: None,
) -> Response:
    """Send a body and return the answer, whatever its status. Redirections are not followed: the key is for one host.

    Proxies are those of the usual variables; certificates are verified.

    Args:
        url: http or https.
        body: to send.
        headers: to send besides.
        timeout_s: from now to the last byte.
        tick: called every 10 seconds while there is no answer.

    Raises:
        NoAnswer: no connection, a cut one, a certificate that is not valid, too slow or too large.
    """
    call = _Call(url, body, headers, timeout_s)
    thread = threading.Thread(target=call.run, name="post", daemon=True)
    thread.start()
    while not call.done.wait(min(TICK_S, max(0.0, call.deadline - time.monotonic()))):
        if time.monotonic() >= call.deadline:
            raise call.too_slow()
        tick()
    return call.result()


class _Call:
    """What the thread does, and what becomes of it."""

    def __init__(self, url: str, body: bytes, headers: Mapping[str, str], timeout_s: float) -> None:
        self.deadline = time.monotonic() + timeout_s
        self.done = threading.Event()
        self._request = urllib.request.Request(url, data=body, headers=dict(headers), method="POST")
        self._timeout_s = timeout_s
        self._response: Response | None = None
        self._problem: Exception | None = None

    def run(self) -> None:
        try:
            try:
                with opener().open(self._request, timeout=self._timeout_s) as answer:
                    self._response = self._read(answer)
            except HTTPError as answer:
                with answer:
                    self._response = self._read(answer)
        except Exception as problem:  # noqa: BLE001 - it is raised again where it is waited for
            self._problem = problem
        finally:
            self.done.set()

    def too_slow(self) -> NoAnswer:
        """At the deadline the caller and the thread both see it, and either may be the first: they say the same."""
        return NoAnswer(f"no complete response within {self._timeout_s:g} s")

    def result(self) -> Response:
        if self._response is not None:
            return self._response
        problem = self._problem
        if isinstance(problem, NoAnswer):
            raise problem
        if isinstance(problem, TimeoutError):  # of reading: that of connecting is a URLError
            raise self.too_slow()
        if isinstance(problem, OSError | http.client.HTTPException):
            raise explain(problem) from None
        assert problem is not None
        raise problem

    def _read(self, answer: Any) -> Response:
        parts: list[bytes] = []
        size = 0
        while part := answer.read1(_CHUNK):
            parts.append(part)
            size += len(part)
            if size > LARGEST:
                raise NoAnswer(f"the response is larger than {LARGEST >> 20} MiB")
            if time.monotonic() >= self.deadline:
                raise self.too_slow()
        if getattr(answer, "length", None):
            raise NoAnswer("the connection was closed in the middle of the response")
        headers = {name.lower(): value for name, value in answer.headers.items()}
        return Response(status=answer.status, headers=headers, body=b"".join(parts))


def explain(problem: Exception) -> NoAnswer:
    """Why there was no answer, in words."""
    reason: Any = problem.reason if isinstance(problem, URLError) else problem
    if isinstance(reason, ssl.SSLCertVerificationError):
        return NoAnswer(f"its certificate is not valid: {reason.verify_message}", lasting=True)
    if isinstance(reason, TimeoutError):
        return NoAnswer("no connection in time")
    text = reason.strerror if isinstance(reason, OSError) and reason.strerror else str(reason)
    return NoAnswer(f"{type(reason).__name__}: {text}")


class _Plain(http.client.HTTPConnection):
    """Gives up sooner while it connects than while it is read."""

    def connect(self) -> None:
        whole, self.timeout = self.timeout, _CONNECT_S
        super().connect()
        self.sock.settimeout(whole)


class _Secure(http.client.HTTPSConnection):
    """The same over TLS."""

    def connect(self) -> None:
        whole, self.timeout = self.timeout, _CONNECT_S
        super().connect()
        self.sock.settimeout(whole)


class _Handler(urllib.request.HTTPHandler):
    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_Plain, req)


class _SecureHandler(urllib.request.HTTPSHandler):
    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_Secure, req, context=ssl.create_default_context())


class _Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> None:
        return None


def opener() -> urllib.request.OpenerDirector:
    """Opens addresses with the limits of this module; redirections are not followed."""
    return urllib.request.build_opener(_Handler, _SecureHandler, _Stay)
