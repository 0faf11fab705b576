"""A real `evalfleet serve` as a process, and real HTTP to it."""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from tests.support.fleet import DEADLINE_S, Fleet, wait_for


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Served:
    """A server that was started, and the token that it printed."""

    process: subprocess.Popen[str]
    port: int
    token: str

    def ask(self, path: str, method: str = "GET", body: Any = None, token: str | None = "", **headers: str) -> Answer:
        """One request. Token "" is the server's own; None: none."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if token is not None:
            sent["Authorization"] = f"Bearer {token or self.token}"
        content = None
        if method == "POST":
            sent.setdefault("Content-Type", "application/json")
            content = body if isinstance(body, bytes) else json.dumps(body if body is not None else {}).encode()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE_S)
        try:
            connection.request(method, path, content, sent)
            response = connection.getresponse()
            return Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
        finally:
            connection.close()

    def get(self, path: str) -> Any:
        answer = self.ask(f"/api/v1/{path}")
        assert answer.status == 200, answer.body
        return answer.json

    def post(self, path: str, body: Any = None, status: int = 200) -> Any:
        answer = self.ask(f"/api/v1/{path}", "POST", body)
        assert answer.status == status, answer.body
        return answer.json

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def serve(fleet: Fleet, *args: str, port: int = 0, **env: str) -> Served:
    """Start it, and wait until it says where it is."""
    process = fleet.start("serve", "--port", str(port), "--json", *args, **env)
    assert process.stdout is not None
    said: list[str] = []
    for line in process.stdout:
        said.append(line)
        if line.startswith("{"):
            break
    assert "".join(said[-1:]).startswith("{"), "".join(said)
    threading.Thread(target=process.stdout.read, daemon=True).start()  # so that it never waits for us
    told = json.loads(said[-1])
    token = told["address"].partition("token=")[2]
    return Served(process, urlsplit(told["url"]).port or 0, token)


@dataclass
class Listener:
    """Reads the live feed in a thread, as a browser does: it remembers the last number that it saw."""

    server: Served
    query: str = ""
    events: list[dict[str, Any]] = field(default_factory=list)
    named: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    last: str | None = None

    def __post_init__(self) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=DEADLINE_S)
        headers = {"Authorization": f"Bearer {self.server.token}"}
        if self.last is not None:
            headers["Last-Event-ID"] = self.last
        self._connection.request("GET", f"/api/v1/events{self.query}", headers=headers)
        self._response = self._connection.getresponse()
        assert self._response.status == 200, self._response.read()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()
        wait_for(lambda: self.named, "the server's hello")

    def _read(self) -> None:
        message: dict[str, str] = {}
        try:
            for raw in self._response:
                line = raw.decode().rstrip("\n")
                if line:
                    name, _, value = line.partition(": ")
                    message[name] = value
                    continue
                self._take(message)
                message = {}
        except (OSError, http.client.HTTPException, ValueError, AttributeError):
            return  # the connection ended, which a test wanted

    def _take(self, message: dict[str, str]) -> None:
        if "data" not in message:
            return
        data = json.loads(message["data"])
        if "id" in message:
            self.last = message["id"]
        if "event" in message:
            self.named.append((message["event"], data))
        else:
            self.events.append(data)

    @property
    def numbers(self) -> list[int]:
        return [event["number"] for event in self.events]

    def close(self) -> None:
        sock = self._connection.sock
        if sock is not None:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)  # closing alone does not wake the thread that reads
            sock.close()
        self._thread.join(5)
