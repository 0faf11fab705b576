"""The door: which requests come in, by whom.

A browser that was led here by another page must not be able to do anything: a foreign Host header (DNS rebinding) and a foreign Origin
are refused, the cookie is not sent across sites, and every change by cookie needs a header that no form can send.
"""

from __future__ import annotations

import ipaddress
import time
from urllib.parse import urlsplit

from aiohttp import web
from msgspec import Struct

from evalfleet import config
from evalfleet.core.rights import lesser
from evalfleet.daemon.readers import Readers
from evalfleet.errors import EvalfleetError
from evalfleet.model import AccessToken, User
from evalfleet.store.reader import StoreReader
from evalfleet.web.security.sessions import Sessions
from evalfleet.web.security.tokens import NOBODY, START_NAME, Bearer, Limiter, digest_of

HEADER = "X-Evalfleet"
_FRESH_S = 1.0  # so long a revoked token may still be taken
_MOST_BAD = 30  # wrong tokens a minute
_MOST_CHANGES = 600  # changes a minute


class Denied(EvalfleetError):
    """Not allowed."""

    def __init__(self, status: int, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after_s = retry_after_s


class Entrance(Struct, frozen=True, kw_only=True):
    """The host names of the server, and whether reading needs no token."""

    port: int
    hosts: frozenset[str]  # names and addresses that a Host header may have
    any_port: bool = False  # a proxy in front has a port of its own
    secure: bool = False  # the browser speaks TLS, to us or to a proxy
    open: bool = False  # no token is needed to look, and none lets anybody act

    @property
    def cookie(self) -> str:
        # Cookies know no ports: two servers on one machine must not take each other's.
        return f"evalfleet_{self.port}"


class Gate:
    def __init__(self, entrance: Entrance, readers: Readers, key: bytes) -> None:
        self.entrance = entrance
        self.sessions = Sessions(key, entrance.cookie)
        self._readers = readers
        self._known: dict[str, AccessToken] = {}
        self._users: dict[str, User] = {}
        self._read_at = float("-inf")
        self._bad = Limiter(_MOST_BAD)
        self._changes = Limiter(_MOST_CHANGES)

    def check_host(self, request: web.BaseRequest) -> None:
        """Raises Denied if the request is addressed to another host."""
        sent = request.headers.get("Host", "")
        try:
            name, port = urlsplit(f"//{sent}").hostname or "", urlsplit(f"//{sent}").port
        except ValueError:
            name, port = "", None
        if name.lower() not in self.entrance.hosts or not (
            self.entrance.any_port or (port or (443 if self.entrance.secure else 80)) == self.entrance.port
        ):
            raise Denied(421, "this server does not answer for that Host; allow it with --allow-host NAME")

    def check_origin(self, request: web.BaseRequest) -> None:
        """Raises Denied, where another site's page sent the request."""
        origin = request.headers.get("Origin")
        if origin is not None and urlsplit(origin).netloc.lower() != request.headers.get("Host", "").lower():
            raise Denied(403, "the request comes from a page of another origin")
        if request.headers.get("Sec-Fetch-Site") == "cross-site":
            raise Denied(403, "the request comes from a page of another site")

    async def admit(self, request: web.Request) -> Bearer:
        """Who asks. Raises Denied, where that is not known, or another site's page may be behind it."""
        self.check_origin(request)
        bearer, by_cookie = await self._bearer(request)
        if request.method not in ("GET", "HEAD"):
            if by_cookie and request.headers.get(HEADER) != "1":
                raise Denied(403, f"a change needs the header {HEADER}: 1")
            self._count_change(bearer)
        return bearer

    async def still_valid(self, bearer: Bearer) -> bool:
        """Whether its token was not revoked meanwhile, and has not expired."""
        if bearer is NOBODY:
            return True
        await self._refresh()
        found = next((token for token in self._known.values() if token.id == bearer.id), None)
        return self._as_bearer(found) == bearer

    async def bearer_of(self, text: str, *, at_once: bool = True) -> Bearer | None:
        """The owner of the token; None if it is unknown. `at_once`: it may have been created a moment ago."""
        digest = digest_of(text)
        await self._refresh(now=at_once and digest not in self._known)
        return self._as_bearer(self._known.get(digest))

    async def try_token(self, request: web.Request, text: str) -> Bearer:
        """Like `bearer_of`; raises Denied. Guessing is slowed down; requests with a valid token are not, even from the same address."""
        remote = request.remote or ""
        wait_s = self._bad.retry_after_s(remote)
        bearer = await self.bearer_of(text, at_once=wait_s is None)
        if bearer is not None:
            return bearer
        self._bad.count(remote)
        if wait_s is not None:
            raise Denied(429, "too many wrong tokens from this address; try again later", wait_s)
        raise Denied(401, "the token is not known, revoked or expired; `evalfleet serve` prints an address with one")

    async def _of_session(self, text: str) -> Bearer:
        """Who opened the session. Raises Denied."""
        token_id = self.sessions.token_of(text)
        await self._refresh()
        found = next((token for token in self._known.values() if token.id == token_id), None)
        bearer = self._as_bearer(found)
        if bearer is None:
            raise Denied(401, "this browser's session is over; open the address that `evalfleet serve` prints")
        return bearer

    def _as_bearer(self, token: AccessToken | None) -> Bearer | None:
        if token is None or not self._is_valid(token):
            return None
        if token.user_name is None:
            own = config.login_name() if token.name == START_NAME else token.name
            return Bearer(id=token.id, name=token.name, role=token.role, user=own)
        user = self._users.get(token.user_name)
        if user is None or user.disabled:
            return None
        return Bearer(id=token.id, name=token.name, role=lesser(token.role, user.role), user=user.name)

    async def _bearer(self, request: web.Request) -> tuple[Bearer, bool]:
        sent = request.headers.get("Authorization", "")
        if sent:
            kind, _, text = sent.partition(" ")
            if kind.lower() != "bearer" or not text.strip():
                raise Denied(401, "the Authorization header is not of the form `Bearer TOKEN`")
            return await self.try_token(request, text.strip()), False
        text = request.cookies.get(self.entrance.cookie)
        if text:
            return await self._of_session(text), True
        if self.entrance.open:
            return NOBODY, True
        raise Denied(
            401, "a token is needed: open the address that `evalfleet serve` printed, or send `Authorization: Bearer`"
        )

    def _count_change(self, bearer: Bearer) -> None:
        wait_s = self._changes.retry_after_s(bearer.id)
        if wait_s is not None:
            raise Denied(429, f"more than {_MOST_CHANGES} changes a minute; try again later", wait_s)
        self._changes.count(bearer.id)

    async def _refresh(self, *, now: bool = False) -> None:
        if now or time.monotonic() - self._read_at > _FRESH_S:
            known, users = await self._readers.call(_tokens)
            self._known = {token.digest: token for token in known}
            self._users = {user.name: user for user in users}
            self._read_at = time.monotonic()

    @staticmethod
    def _is_valid(token: AccessToken) -> bool:
        return token.expires_at is None or token.expires_at > time.time()


def _tokens(store: StoreReader) -> tuple[list[AccessToken], list[User]]:
    return store.tokens.all(), store.users.all()


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def names_of(host: str, more: tuple[str, ...] = ()) -> frozenset[str]:
    """What a Host header may say for a server that listens at `host`."""
    names = {host.lower(), *(name.lower() for name in more)}
    if is_loopback(host):
        names |= {"127.0.0.1", "localhost", "::1"}
    return frozenset(names)
