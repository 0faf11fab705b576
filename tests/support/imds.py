"""The metadata service of a VM, played by a small real HTTP server."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

NAME = "spot-3"


def preempt(*machines: str, kind: str = "Preempt", **fields: Any) -> dict[str, Any]:
    return {
        "EventId": "602D9444",
        "EventType": kind,
        "ResourceType": "VirtualMachine",
        "Resources": list(machines),
        "EventStatus": "Scheduled",
        "NotBefore": "Mon, 19 Sep 2022 18:29:47 GMT",
        "Description": "",
        "EventSource": "Platform",
        "DurationInSeconds": -1,
        **fields,
    }


class Imds:
    """What the service says, and what it was asked. The fields are switches that a test may turn at any moment."""

    def __init__(self, server: ThreadingHTTPServer) -> None:
        self.url = f"http://127.0.0.1:{server.server_address[1]}"
        self.name: str | None = NAME
        self.events: list[dict[str, Any]] = []
        self.body: bytes | None = None  # in the place of every answer
        self.status = 200
        self.asked: list[tuple[str, str]] = []  # method and path, of requests as the service wants them
        self._news = threading.Condition()

    def answer(self, method: str, path: str, metadata: str | None) -> tuple[int, bytes]:
        if metadata != "true":
            return 400, b"{}"
        with self._news:
            self.asked.append((method, path))
            self._news.notify_all()
        if self.body is not None or self.status != 200:
            return self.status, self.body or b"{}"
        if path == "/metadata/instance?api-version=2021-02-01":
            return 200, json.dumps({"compute": {"name": self.name}}).encode()
        if path == "/metadata/scheduledevents?api-version=2020-07-01":
            return 200, json.dumps({"DocumentIncarnation": 1, "Events": self.events}).encode()
        return 404, b"{}"

    def wait_asked(self, part: str, times: int) -> None:
        """Wait until it was asked so often again."""
        self.wait_asked_in_all(part, self.count(part) + times)

    def wait_asked_in_all(self, part: str, wanted: int) -> None:
        """Wait until it was asked so often since it began."""
        with self._news:
            assert self._news.wait_for(lambda: self.count(part) >= wanted, 60.0), self.asked

    def count(self, part: str) -> int:
        return sum(part in path for _, path in self.asked)


@contextlib.contextmanager
def running() -> Iterator[Imds]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = imds.answer(self.command, self.path, self.headers.get("Metadata"))
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET  # noqa: N815 - what the server looks for

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    imds = Imds(server)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield imds
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
