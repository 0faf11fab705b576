"""Tokens of users. Only digests are stored; a token is shown once, when it is created."""

from __future__ import annotations

import hashlib
import secrets
import time

from msgspec import Struct

from evalfleet.model import AccessToken, Role
from evalfleet.store.store import Store

PREFIX = "ef_"
START_NAME = "serve"
START_LIFE_S = 30 * 86_400.0  # of the token that `serve` makes for the address that it prints


class Made(Struct, frozen=True, kw_only=True):
    """A new token. `text` is its only copy."""

    text: str
    token: AccessToken

    def __repr__(self) -> str:
        return f"<new token {self.token.id}>"


class Bearer(Struct, frozen=True, kw_only=True):
    """Who asks."""

    id: str
    name: str
    role: Role
    user: str  # whose runs theirs are

    def __str__(self) -> str:
        return f"token {self.name} ({self.id})"


NOBODY = Bearer(id="", name="without a token", role=Role.READER, user="")


def digest_of(text: str) -> str:
    # One round is enough: the token is 256 random bits, not a word that somebody chose.
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


def make(store: Store, name: str, role: Role, life_s: float | None = None, user: str | None = None) -> Made:
    """Make a token and keep its digest."""
    text = PREFIX + secrets.token_urlsafe(32)
    expires_at = None if life_s is None else store.now() + life_s
    return Made(text=text, token=store.tokens.add(name, role, digest_of(text), expires_at, user=user))


def restart(store: Store, port: int) -> str:
    """The token of a server that starts at that port. It takes the place of the former one there, so there is one per port.

    Sessions name the id of their token. So it stays while the former one is valid, and pages that are open go on; after its end, or when
    it was revoked, the next has another id, and no session of before is worth anything.
    """
    text, now = PREFIX + secrets.token_urlsafe(32), store.now()
    place = f"{START_NAME}-{port}"
    former = [one for one in store.tokens.all() if one.name == START_NAME and f"{one.id}-".startswith(f"{place}-")]
    valid = [one.id for one in former if one.id != place and (one.expires_at is None or one.expires_at > now)]
    for one in former:
        if one.id not in valid:
            store.tokens.revoke(one.id)
    token_id = valid[0] if valid else f"{place}-{secrets.token_hex(8)}"
    store.tokens.renew(token_id, START_NAME, Role.ADMIN, digest_of(text), now + START_LIFE_S)
    return text


class Limiter:
    """How often something may happen per minute, by whom. Remembers few and forgets them soon."""

    def __init__(self, most: int, window_s: float = 60.0) -> None:
        self._most = most
        self._window_s = window_s
        self._times: dict[str, list[float]] = {}

    def retry_after_s(self, who: str) -> float | None:
        """After how many seconds it is allowed again; None: now."""
        recent = self._recent(who)
        return None if len(recent) < self._most else max(1.0, recent[0] + self._window_s - time.monotonic())

    def count(self, who: str) -> None:
        if len(self._times) > 1000:
            self._times = {name: recent for name in list(self._times) if (recent := self._recent(name))}
        self._times[who] = [*self._recent(who), time.monotonic()]

    def _recent(self, who: str) -> list[float]:
        since = time.monotonic() - self._window_s
        return [at for at in self._times.get(who, ()) if at > since][-self._most :]
