"""The servers that this user has signed in to, with the tokens: one file of the user, which nobody else may read."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from evalfleet.config import user_folder
from evalfleet.errors import InputError, NotFound


class KnownServer(Struct, frozen=True, kw_only=True):
    url: str  # without a slash at its end
    token: str

    def __repr__(self) -> str:
        return f"<server {self.url}>"


def file() -> Path:
    return user_folder() / "servers.json"


def known() -> list[KnownServer]:
    """Newest first. Raises InputError where the file is damaged, or others may read it."""
    path = file()
    try:
        mode, content = path.stat().st_mode, path.read_bytes()
    except FileNotFoundError:
        return []
    if mode & 0o077:
        raise InputError(f"{path} holds tokens and others may read it; run: chmod 600 {path}")
    try:
        return msgspec.json.decode(content, type=list[KnownServer])
    except msgspec.MsgspecError:
        raise InputError(f"{path} is damaged; delete it, and sign in again with `evalfleet login`") from None


def named(text: str) -> KnownServer:
    """The server of an address or host name. Raises NotFound."""
    wanted = text.rstrip("/")
    found = [one for one in known() if wanted in (one.url, urlsplit(one.url).netloc, urlsplit(one.url).hostname)]
    if not found:
        raise NotFound(f"you are not signed in to {text!r}; `evalfleet login https://HOST` does it")
    return found[0]


def keep(server: KnownServer) -> None:
    """In place of what was known of that server."""
    _write([server, *(one for one in known() if one.url != server.url)])


def forget(text: str) -> KnownServer:
    """Raises NotFound."""
    gone = named(text)
    _write([one for one in known() if one != gone])
    return gone


def _write(servers: list[KnownServer]) -> None:
    path = file()
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    fresh = path.with_name(f"{path.name}.{os.getpid()}")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as out:
        out.write(msgspec.json.encode(servers))
    fresh.replace(path)
