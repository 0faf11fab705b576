"""Guest and client over real HTTP, with an environment that is only pretended; and guests that misbehave."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest

from evalfleet.actions import Action, Click, Press, Wait, Write
from evalfleet.environments.base import LARGEST_FILE, LARGEST_OUTPUT, Executed, Probe, Size
from evalfleet.environments.desktop import init
from evalfleet.environments.guest import messages
from evalfleet.environments.guest.client import GuestClient
from evalfleet.environments.guest.server import Guest
from evalfleet.errors import EnvironmentFailed, EpisodeOver, InputError


class Pretended:
    """Remembers what is done to it, and by which thread."""

    def __init__(self) -> None:
        self.done: list[Any] = []
        self.threads: set[int] = set()
        self.files: dict[str, bytes] = {}
        self.error: Exception | None = None

    def _note(self, what: Any) -> None:
        self.threads.add(threading.get_ident())
        self.done.append(what)
        if self.error:
            raise self.error

    def probe(self) -> Probe:
        self._note("probe")
        return Probe(kind="pretended", ready=False, waits_for="the moon", screen=Size(width=3, height=2))

    def screenshot(self) -> bytes:
        self._note("screenshot")
        return b"\x89PNG\r\n\x1a\n"

    def perform(self, action: Action) -> None:
        self._note(action)

    def execute(
        self,
        command: Sequence[str],
        *,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        timeout_s: float = 60.0,
    ) -> Executed:
        self._note((list(command), stdin, env, timeout_s))
        return Executed(code=-9, stdout=stdin, stderr="ü".encode(), timed_out=True, cut=True)

    def launch(self, command: Sequence[str]) -> None:
        self._note(list(command))

    def read(self, path: str) -> bytes:
        self._note(path)
        return self.files[path]

    def write(self, path: str, data: bytes) -> None:
        self.files[path] = data

    def reset(self) -> None:
        self._note("reset")


@pytest.fixture
def environment() -> Pretended:
    return Pretended()


@pytest.fixture
def guest(environment: Pretended) -> Iterator[Guest]:
    with Guest(environment) as guest:
        thread = threading.Thread(target=guest.serve)
        thread.start()
        yield guest
        guest.stop()
        thread.join(30)


@pytest.fixture
def client(guest: Guest) -> GuestClient:
    return GuestClient(guest.address, guest.token)


def ask(guest: Guest, method: str, path: str, body: bytes = b"", **headers: str) -> tuple[int, dict[str, Any]]:
    connection = http.client.HTTPConnection(guest.address.removeprefix("http://"), timeout=10)
    with contextlib.closing(connection):
        connection.request(method, path, body, {"Authorization": f"Bearer {guest.token}", **headers})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())


def test_everything_arrives_and_comes_back(client: GuestClient, environment: Pretended):
    assert client.probe() == Probe(kind="pretended", ready=False, waits_for="the moon", screen=Size(width=3, height=2))
    assert client.screenshot() == b"\x89PNG\r\n\x1a\n"
    actions = [Click(x=1.5, y=2, held=("Control",)), Write(text="ü\n😀"), Press(key="a", times=3), Wait(seconds=0)]
    for action in actions:
        client.perform(action)
    done = client.execute(["cat", "ü"], stdin=b"\xff\0", env={"A": "b"}, timeout_s=5)
    assert done == Executed(code=-9, stdout=b"\xff\0", stderr="ü".encode(), timed_out=True, cut=True)
    client.launch(["xterm"])
    client.write("a b/ü&?=#%.txt", b"\0\1")
    assert client.read("a b/ü&?=#%.txt") == b"\0\1"
    client.reset()
    assert environment.done == [
        *("probe", "screenshot", *actions, (["cat", "ü"], b"\xff\0", {"A": "b"}, 5.0)),
        *(["xterm"], "a b/ü&?=#%.txt", "reset"),
    ]
    assert len(environment.threads) == 1


def test_errors_keep_their_meaning(client: GuestClient, environment: Pretended):
    for error in (InputError("no key"), EnvironmentFailed("broken"), EpisodeOver("over")):
        environment.error = error
        with pytest.raises(type(error), match=str(error)):
            client.perform(Press(key="a"))


@pytest.mark.parametrize(
    ("method", "path", "body", "headers", "status", "kind"),
    [
        ("GET", "/probe", b"", {"Authorization": "Bearer wrong"}, 401, "token"),
        ("GET", "/probe", b"", {"Authorization": "\xff"}, 401, "token"),
        ("GET", "/", b"", {}, 404, "path"),
        ("POST", "/probe", b"", {}, 404, "path"),
        ("GET", "/file", b"", {}, 400, "input"),
        ("POST", "/input", b"", {}, 400, "input"),
        ("POST", "/input", b"[" * 100_000, {}, 400, "input"),
        ("POST", "/input", b'{"do": "dance"}', {}, 400, "input"),
        ("POST", "/input", b'{"do": "click", "x": NaN, "y": 1}', {}, 400, "input"),
        ("POST", "/execute", b'{"command": "ls"}', {}, 400, "input"),
        ("POST", "/execute", b'{"command": ["ls"], "env": [1]}', {}, 400, "input"),
        ("POST", "/execute", b'{"command": ["ls"], "timeout_s": 1e9}', {}, 400, "input"),
        ("POST", "/execute", b'{"command": ["ls"], "timeout_s": true}', {}, 400, "input"),
        ("POST", "/execute", b'{"command": ["ls"], "stdin_base64": "?"}', {}, 400, "input"),
        ("POST", "/execute", b'{"command": ["ls"], "comand": 1}', {}, 400, "input"),
        ("POST", "/input", b"{}", {"Content-Length": "99999999"}, 413, "size"),
        ("POST", "/input", b"{}", {"Content-Length": "-1"}, 411, "size"),
        ("POST", "/input", b"{}", {"Transfer-Encoding": "chunked"}, 411, "size"),
    ],
)
def test_bad_requests_are_refused(
    guest: Guest,
    environment: Pretended,
    method: str,
    path: str,
    body: bytes,
    headers: dict[str, str],
    status: int,
    kind: str,
):
    answered, told = ask(guest, method, path, body, **headers)
    assert (answered, told["kind"]) == (status, kind)
    assert told["error"]
    assert environment.done == []


def test_silent_and_broken_clients_disturb_nobody(guest: Guest, client: GuestClient):
    host, port = guest.address.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))), socket.create_connection((host, int(port))) as broken:
        broken.sendall(b"\xff\0 nonsense\r\n\r\n")
        assert client.screenshot()


def test_after_the_end_everything_is_refused(environment: Pretended):
    with Guest(environment) as guest:
        client = GuestClient(guest.address, guest.token)
        guest.stop()
        with pytest.raises(EpisodeOver):
            client.screenshot()
    with pytest.raises(EnvironmentFailed, match="is gone"):
        client.screenshot()


def served(answer: Callable[[socket.socket], None]) -> Iterator[str]:
    """A server that does as it likes with its first connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(65536)
                answer(connection)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        thread.join(30)


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (b"", "is gone"),
        (b"SSH-2.0-x\r\n", "is gone"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort", "is gone"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]", "is not a probe"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n{", "is not JSON"),
        (b"HTTP/1.1 502 Bad\r\nContent-Length: 4\r\n\r\noops", "status 502"),
        (b'HTTP/1.1 401 No\r\nContent-Length: 33\r\n\r\n{"error": "token", "kind": "token"}', "refused: token"),
    ],
)
def test_guests_that_talk_nonsense(sent: bytes, said: str):
    sent = sent.replace(b"Content-Length: 33", b"Content-Length: 35")
    for address in served(lambda connection: connection.sendall(sent)):
        with pytest.raises(EnvironmentFailed, match=said):
            GuestClient(address, "token", timeout_s=10).probe()


def test_a_guest_that_hangs_or_drips_is_given_up():
    gone = threading.Event()

    def hang(_connection: socket.socket) -> None:
        gone.wait(30)

    for address in served(hang):
        with pytest.raises(EnvironmentFailed, match=r"did not answer /probe within 0\.2 s"):
            GuestClient(address, "token", timeout_s=0.2).probe()
        gone.set()

    def drip(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        with contextlib.suppress(OSError):
            while not stopped.wait(0.01):
                connection.sendall(b"x")

    stopped = threading.Event()
    for address in served(drip):
        with pytest.raises(EnvironmentFailed, match=r"did not answer /screenshot within 0\.3 s"):
            GuestClient(address, "token", timeout_s=0.3).screenshot()
        stopped.set()


@pytest.mark.parametrize("address", ["", "https://x", "http://", "http://x:y", "127.0.0.1:80"])
def test_what_is_no_address(address: str):
    with pytest.raises(InputError, match="is not the address of a guest"):
        GuestClient(address, "token")


def test_limits_are_the_same_inside_and_outside():
    assert (init.LARGEST_FILE, init.LARGEST_OUTPUT) == (LARGEST_FILE, LARGEST_OUTPUT)
    assert messages.LARGEST_UPLOAD == LARGEST_FILE
