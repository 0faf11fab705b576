"""A reverse proxy for an OpenAI-compatible endpoint, on loopback.

Programs that are not ours call a model through it. They get a token instead of the key, which stays here. Every answer is passed on as
it comes, streams included, and is told to the owner: what it means, its tokens, the provider's words. The proxy changes and
retries nothing.
"""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from types import TracebackType
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request

from msgspec import Struct

from evalfleet.agents.llm.http_post import LARGEST, NoAnswer, Response, explain, opener
from evalfleet.agents.llm.replies import Reply, Sense, understand

_PREFIX = "/v1"
_CHUNK = 1 << 16
_MOST_BODY = 64 << 20  # of a request: a few screenshots
# What concerns one connection only, or the key.
_NOT_SENT = frozenset(
    {"host", "authorization", "api-key", "content-length", "connection", "accept-encoding", "transfer-encoding"}
)
_NOT_RETURNED = frozenset({"connection", "transfer-encoding", "content-encoding", "keep-alive"})


class Upstream(Struct, frozen=True, kw_only=True):
    """The endpoint behind the proxy."""

    base_url: str  # without a slash at its end
    key: str | None
    timeout_s: float  # without a byte from it


class Call(Struct, frozen=True, kw_only=True):
    """One call of the model, as it ended."""

    reply: Reply
    took_s: float


class Proxy:
    """Serves on a free port of loopback while its context is open.

    Args:
        upstream: where calls go.
        token: what callers must give as their key.
        told: hears of each call, from the call's own thread.
    """

    def __init__(self, upstream: Upstream, token: str, told: Callable[[Call], None]) -> None:
        own = {"upstream": upstream, "token": token, "told": staticmethod(told)}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), own))
        self._server.daemon_threads = True
        self.port: int = self._server.server_port

    def __enter__(self) -> Proxy:
        Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True).start()
        return self

    def __exit__(self, _k: type[BaseException] | None, _e: BaseException | None, _t: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    """Serves one caller. A subclass of each proxy has these:"""

    upstream: Upstream
    token: str
    told: Callable[[Call], None]
    timeout = 300.0  # of a caller that sends nothing

    def do_POST(self) -> None:
        size = int(self.headers.get("Content-Length") or 0)
        if self.headers.get("Authorization") != f"Bearer {self.token}":
            self._refuse(401, "this endpoint is another attempt's")
        elif not 0 <= size <= _MOST_BODY:
            self._refuse(413, f"the request is larger than {_MOST_BODY >> 20} MiB")
        else:
            self._forward(self.rfile.read(size))

    def do_GET(self) -> None:
        self.do_POST()

    def _forward(self, body: bytes) -> None:
        begun = time.monotonic()
        try:
            reply = self._exchange(body)
        except NoAnswer as problem:
            reply = Reply(sense=Sense.CLOSED if problem.lasting else Sense.BUSY, text=str(problem))
            self._refuse(504, reply.text)
        if self.command == "POST":  # a list of models is no call
            self.told(Call(reply=reply, took_s=time.monotonic() - begun))

    def _exchange(self, body: bytes) -> Reply:
        try:
            try:
                answer = opener().open(self._request(body), timeout=self.upstream.timeout_s)
            except HTTPError as error:
                answer = error
            with answer:
                return self._relay(answer)
        except (OSError, http.client.HTTPException) as problem:
            if isinstance(problem, TimeoutError):
                raise NoAnswer(f"no answer within {self.upstream.timeout_s:g} s") from None
            raise explain(problem) from None

    def _request(self, body: bytes) -> Request:
        headers = {name: value for name, value in self.headers.items() if name.lower() not in _NOT_SENT}
        if self.upstream.key:
            headers["Authorization"] = f"Bearer {self.upstream.key}"
        url = self.upstream.base_url + self.path.removeprefix(_PREFIX)
        return Request(url, data=body or None, headers=headers, method=self.command)

    def _relay(self, answer: Any) -> Reply:
        """Pass the answer on as it comes. A caller that is gone does not matter: the answer was made, and is counted."""
        headers = {name.lower(): value for name, value in answer.headers.items()}
        first = answer.read1(_CHUNK)  # before anything is promised to the caller
        parts, listening = [first], self._begin(answer.status, headers) and self._send(first)
        while part := answer.read1(_CHUNK):
            parts.append(part)
            listening = listening and self._send(part)
            if sum(map(len, parts)) > LARGEST:
                break
        response = Response(status=answer.status, headers=headers, body=b"".join(parts))
        streamed = headers.get("content-type", "").startswith("text/event-stream")
        return _streamed(response) if streamed and answer.status == 200 else understand(response, datetime.now(UTC))

    def _begin(self, status: int, headers: dict[str, str]) -> bool:
        try:
            self.send_response(status)
            for name, value in headers.items():
                if name not in _NOT_RETURNED:
                    self.send_header(name, value)
            self.end_headers()
        except OSError:
            return False
        return True

    def _send(self, data: bytes) -> bool:
        try:
            self.wfile.write(data)
            self.wfile.flush()
        except OSError:
            return False
        return True

    def _refuse(self, status: int, words: str) -> None:
        body = json.dumps({"error": {"message": words, "type": "evalfleet_proxy", "code": None}}).encode()
        if self._begin(status, {"content-type": "application/json", "content-length": str(len(body))}):
            self._send(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def _streamed(response: Response) -> Reply:
    """A completion in events. Its tokens are known where the endpoint was asked to tell them (`include_usage`)."""
    tokens_in = tokens_out = 0
    for row in response.body.decode("utf-8", "replace").splitlines():
        data = row.removeprefix("data:").strip()
        if row.startswith("data:") and data != "[DONE]" and '"usage"' in data:
            try:
                usage: Any = json.loads(data).get("usage") or {}
                tokens_in, tokens_out = int(usage["prompt_tokens"]), int(usage["completion_tokens"])
            except (ValueError, KeyError, TypeError, AttributeError):
                continue
    return Reply(sense=Sense.COMPLETION, tokens_in=tokens_in, tokens_out=tokens_out)
