"""Sessions: what a browser keeps instead of a token.

A cookie is sent to every port of its host, so also to whatever else listens there. A session names the token that opened it and is
signed with a key of this home, for this server's port: it is no token, and no other server takes it. It ends with its token.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import time
from contextlib import suppress
from pathlib import Path

LIFE_S = 30 * 86_400.0
_KEY_BYTES = 32


class Sessions:
    """
    Args:
        audience: which server; a session of another one is not known here.
    """

    def __init__(self, key: bytes, audience: str) -> None:
        self._key = key
        self._audience = audience

    def open(self, token_id: str) -> str:
        """A new session of that token, as text that a cookie can have."""
        head = f"{token_id}.{int(time.time()):x}.{secrets.token_hex(8)}"
        return f"{head}.{self._signed(head)}"

    def token_of(self, text: str) -> str | None:
        """The id of the token that opened it; None: it was not issued here, or is too old."""
        head, _, sign = text.rpartition(".")
        if not head or not hmac.compare_digest(sign.encode("utf-8", "replace"), self._signed(head).encode()):
            return None
        token_id, began, _ = head.rsplit(".", 2)
        return token_id if time.time() - int(began, 16) < LIFE_S else None

    def _signed(self, head: str) -> str:
        said = f"{self._audience}\0{head}".encode("utf-8", "replace")
        return hmac.new(self._key, said, hashlib.sha256).hexdigest()


def key_in(path: Path) -> bytes:
    """The key of a home, which is made where there is none: a page that is open outlives a restart of the server."""
    with suppress(OSError):
        key = path.read_bytes()
        if len(key) == _KEY_BYTES:
            return key
    made = secrets.token_bytes(_KEY_BYTES)
    fresh = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(made)
        fresh.replace(path)
    except OSError:
        return made  # then pages end with this server
    return path.read_bytes()
