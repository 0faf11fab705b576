"""Requests to a server's API. Certificates are verified; redirections are not followed, because the token is for one server."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Mapping
from typing import Any, TypeVar
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from evalfleet.answers.server import Me
from evalfleet.errors import EvalfleetError, InputError, NotFound, Refused
from evalfleet.remote.servers import KnownServer
from evalfleet.version import version

T = TypeVar("T")

_TIMEOUT_S = 60.0
_ERRORS: dict[int, type[EvalfleetError]] = {400: InputError, 404: NotFound}
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_args: Any, **_more: Any) -> None:
        return None


def checked_url(text: str) -> str:
    """The address of a server as it is kept. Raises InputError."""
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.username:
        raise InputError(f"{text[:200]!r} is not the address of a server; write https://HOST, without a token in it")
    if parts.scheme == "http" and parts.hostname not in _LOOPBACK:
        raise InputError(f"{text[:200]!r} would send the token unencrypted; write https://")
    return f"{parts.scheme}://{parts.netloc}"


class ServerApi:
    """One server, with the token."""

    def __init__(self, server: KnownServer) -> None:
        self.server = server
        self._opener = urllib.request.build_opener(_NoRedirect)

    def get(self, path: str, type: type[T], query: Mapping[str, Any] | None = None) -> T:
        """Raises NotFound, InputError, Refused, as the server says."""
        given = {name: value for name, value in (query or {}).items() if value not in (None, (), [])}
        return self._ask(f"{path}?{urlencode(given, doseq=True)}" if given else path, None, type)

    def post(self, path: str, body: Mapping[str, Any], type: type[T]) -> T:
        """As `get`."""
        return self._ask(path, json.dumps(body).encode(), type)

    def _ask(self, path: str, body: bytes | None, type: type[T]) -> T:
        request = urllib.request.Request(f"{self.server.url}/api/v1/{path}", data=body)
        request.add_header("Authorization", f"Bearer {self.server.token}")
        if body is not None:
            request.add_header("Content-Type", "application/json")
        try:
            with self._opener.open(request, timeout=_TIMEOUT_S) as response:
                content = response.read()
        except HTTPError as error:
            raise _refused(self.server.url, error) from None
        except (URLError, OSError) as error:
            reason = getattr(error, "reason", None) or error
            raise Refused(f"{self.server.url} cannot be reached: {reason}") from None
        try:
            return msgspec.json.decode(content, type=type)
        except msgspec.MsgspecError as error:
            raise Refused(
                f"{self.server.url} answers in words of another version ({error}); {self._versions()}"
            ) from None

    def _versions(self) -> str:
        try:
            theirs = self.get("me", Me).version
        except EvalfleetError:
            theirs = "unknown"
        return f"here is evalfleet {version()}, there {theirs}"


def part(text: str) -> str:
    """A name as a part of an address."""
    return quote(text, safe="")


def _refused(url: str, error: HTTPError) -> EvalfleetError:
    try:
        message = str(json.loads(error.read())["error"]["message"])
    except (ValueError, KeyError, TypeError, OSError):
        message = f"{url} answered {error.code}, and not as an evalfleet server does"
    if error.code == 401:
        message = f"{url} does not take the token any more ({message}); sign in again with `evalfleet login {url}`"
    return _ERRORS.get(error.code, Refused)(message)
