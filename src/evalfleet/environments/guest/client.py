"""An environment behind HTTP: speaks the guest's protocol, and is an environment itself."""

from __future__ import annotations

import http.client
import json
import socket
import time
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlsplit

from evalfleet.actions import Action, to_json
from evalfleet.environments.base import LONGEST_WAIT_S, Executed, Probe, Size
from evalfleet.environments.guest import messages as words
from evalfleet.errors import EnvironmentFailed, EvalfleetError, InputError

_BLOCK = 1 << 18
_LARGEST_ANSWER = words.LARGEST_UPLOAD + (1 << 20)


class GuestClient:
    """Implements `Environment`. Opens a connection for every request, so it survives a guest that starts anew.

    Args:
        address: such as "http://127.0.0.1:5000".
        timeout_s: for a request; programs and waits have their own time on top of it.

    Raises:
        InputError: the address is not one.
    """

    def __init__(self, address: str, token: str, *, timeout_s: float = 60.0) -> None:
        parts = urlsplit(address)
        try:
            host, port = parts.hostname, parts.port or 80
        except ValueError:
            host, port = None, 0
        if parts.scheme != "http" or not host:
            raise InputError(f"{address!r} is not the address of a guest; it looks like http://127.0.0.1:5000")
        self._host, self._port, self._token, self._timeout_s = host, port, token, timeout_s

    def probe(self) -> Probe:
        try:
            return _probe_of(self._json("GET", "/probe"))
        except (ValueError, KeyError, TypeError):
            raise EnvironmentFailed("the guest's answer to /probe is not a probe") from None

    def screenshot(self) -> bytes:
        return self._ask("GET", "/screenshot")

    def perform(self, action: Action) -> None:
        self._json("POST", "/input", to_json(action), more_s=LONGEST_WAIT_S)

    def execute(
        self,
        command: Sequence[str],
        *,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        timeout_s: float = 60.0,
    ) -> Executed:
        order = _order_to_json(list(command), stdin, env or {}, timeout_s)
        try:
            return _executed_of(self._json("POST", "/execute", order, more_s=timeout_s))
        except (ValueError, KeyError, TypeError):
            raise EnvironmentFailed("the guest's answer to /execute does not tell how the program ended") from None

    def launch(self, command: Sequence[str]) -> None:
        self._json("POST", "/setup/launch", {"command": list(command)})

    def read(self, path: str) -> bytes:
        return self._ask("GET", f"/file?path={_quoted(path)}")

    def write(self, path: str, data: bytes) -> None:
        self._ask("POST", f"/setup/upload?path={_quoted(path)}", data)

    def reset(self) -> None:
        self._json("POST", "/setup/reset", {})

    def _json(self, method: str, path: str, body: Any = None, *, more_s: float = 0.0) -> Any:
        data = b"" if body is None else json.dumps(body).encode()
        answer = self._ask(method, path, data, more_s=more_s)
        try:
            return json.loads(answer)
        except ValueError:
            raise EnvironmentFailed(f"the guest's answer to {path} is not JSON") from None

    def _ask(self, method: str, path: str, body: bytes = b"", *, more_s: float = 0.0) -> bytes:
        limit_s = self._timeout_s + more_s
        deadline = time.monotonic() + limit_s
        headers = {"Authorization": f"Bearer {self._token}", "Content-Length": str(len(body))}
        connection = http.client.HTTPConnection(self._host, self._port, timeout=limit_s)
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            data = _whole(answer, connection.sock, deadline)
        except TimeoutError:
            raise EnvironmentFailed(f"the guest did not answer {path.partition('?')[0]} within {limit_s:g} s") from None
        except (OSError, http.client.HTTPException) as error:
            raise EnvironmentFailed(
                f"the guest at {self._host}:{self._port} is gone: {error or type(error).__name__}"
            ) from None
        finally:
            connection.close()
        if answer.status != 200:
            raise _error_of(answer.status, data)
        return data


def _whole(answer: http.client.HTTPResponse, sock: socket.socket | None, deadline: float) -> bytes:
    """Return the body, however slowly it comes, within the deadline and the limit of its size."""
    parts: list[bytes] = []
    size = 0
    while True:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        if sock is not None:
            sock.settimeout(left)
        block = answer.read1(_BLOCK)
        if not block:
            break
        parts.append(block)
        size += len(block)
        if size > _LARGEST_ANSWER:
            raise EnvironmentFailed(f"the guest's answer has more than {_LARGEST_ANSWER} bytes")
    if answer.length:
        raise http.client.IncompleteRead(b"", answer.length)
    return b"".join(parts)


def _quoted(path: str) -> str:
    try:
        return quote(path, safe="/")
    except UnicodeEncodeError:
        raise InputError(f"{path!r} is not a path") from None


def _error_of(status: int, body: bytes) -> EvalfleetError:
    """Return the error that a guest told of."""
    try:
        told: Any = json.loads(body)
        kind, said = str(told["kind"]), str(told["error"])[:1000]
    except (ValueError, KeyError, TypeError):
        return EnvironmentFailed(f"the guest answered with status {status}")
    return words.KINDS[kind][1](said) if kind in words.KINDS else EnvironmentFailed(f"the guest refused: {said}")


def _order_to_json(command: list[str], stdin: bytes, env: Mapping[str, str], timeout_s: float) -> dict[str, Any]:
    return {"command": command, **words.text_of("stdin", stdin), "env": dict(env), "timeout_s": timeout_s}


def _executed_of(told: Any) -> Executed:
    """Return what a guest told of a program. Raises ValueError or the like for what is not that."""
    return Executed(
        code=int(told["code"]),
        stdout=words.bytes_of(told, "stdout"),
        stderr=words.bytes_of(told, "stderr"),
        timed_out=bool(told.get("timed_out", False)),
        cut=bool(told.get("cut", False)),
    )


def _probe_of(told: Any) -> Probe:
    """Return what a guest said of itself. Raises ValueError or the like for what is not that."""
    screen = Size(width=int(told["screen"]["width"]), height=int(told["screen"]["height"]))
    return Probe(
        kind=str(told["kind"]), ready=bool(told["ready"]), waits_for=str(told.get("waits_for", "")), screen=screen
    )
