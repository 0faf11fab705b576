"""A small client of Azure's blob storage: what boxes need, and nothing else."""

from __future__ import annotations

import ssl
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from email.utils import formatdate
from typing import TypeAlias
from urllib.parse import quote, urlsplit
from xml.etree import ElementTree

import aiohttp
from msgspec import Struct
from yarl import URL

from evalfleet.hosts.mailbox.blobs.signatures import DelegationKey, container_address, moment, request_signature
from evalfleet.pilot.carrier import REFUSED, VERSION, BoxClosed, CarrierError, shown

REQUEST_S = 30.0
DELEGATION_S = 6 * 86400.0  # the service lends a key for at most seven days
_EARLIER_S = 900.0  # two clocks may differ

Token: TypeAlias = Callable[[], Awaitable[str]]


class BlobLogin(Struct, frozen=True, kw_only=True):
    """How the controller signs in: by the account's key, or by a token of Entra ID for https://storage.azure.com/."""

    key: str | None = None
    token: Token | None = None

    def __repr__(self) -> str:
        return f"BlobLogin({'key' if self.key else 'token'})"


class BlobAccount:
    """One storage account. `aclose` closes its connections."""

    def __init__(self, url: str, login: BlobLogin, certificate: str | None = None) -> None:
        """
        Args:
            url: such as https://NAME.blob.core.windows.net, or http://127.0.0.1:10000/devstoreaccount1.
            certificate: file of the only certificates that are trusted; None: those of this machine.
        """
        self._trust = ssl.create_default_context(cafile=certificate) if certificate else True
        self.url = url.rstrip("/")
        parts = urlsplit(self.url)
        self.name = parts.path.strip("/") or (parts.hostname or "").partition(".")[0]
        self._path = parts.path.rstrip("/")
        self._login = login
        self._session: aiohttp.ClientSession | None = None
        self._lent: tuple[DelegationKey, float] | None = None

    async def aclose(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def ask(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        data: bytes | None = None,
        passes: Collection[int] = (),
        about_container: bool = False,
    ) -> tuple[int, bytes]:
        """Send one request. Returns its status and answer.

        Args:
            path: below the account, such as /container/name.
            passes: statuses besides success that the caller understands.
            about_container: these include what is said of the container itself; otherwise a box that is not there is closed.

        Raises CarrierError where the service fails or does not answer, BoxClosed where it refuses us or has no such container.
        """
        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=REQUEST_S), trust_env=True)
        full = self._path + quote(path)
        signed = await self._signed(method, full, query or {}, headers or {}, data)
        address = URL(shown(self.url)).with_path(full, encoded=True).with_query(query or {})
        try:
            async with self._session.request(method, address, headers=signed, data=data, ssl=self._trust) as answer:
                found = await answer.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise CarrierError(f"{self.name}{path}: {str(error) or type(error).__name__}") from error
        code = answer.headers.get("x-ms-error-code", "")
        is_closed = answer.status in REFUSED or (code.startswith("Container") and not about_container)
        if answer.ok or (answer.status in passes and not is_closed):
            return answer.status, found
        kind = BoxClosed if is_closed else CarrierError
        raise kind(f"{self.name}{path}: status {answer.status} {code}")

    async def grant(self, container: str, expires: float) -> str:
        """The signed address of a container for a node."""
        if self._login.key is not None:
            return container_address(self.url, self.name, container, expires, key=self._login.key)
        lent = await self._delegation(expires)
        return container_address(self.url, self.name, container, min(expires, self._lent_until()), lent=lent)

    def _lent_until(self) -> float:
        return self._lent[1] if self._lent is not None else 0.0

    async def _delegation(self, expires: float) -> DelegationKey:
        """A key that is lent for long enough: that of before, or a new one."""
        now = time.time()
        if self._lent is None or self._lent[1] < min(expires, now + DELEGATION_S / 2):
            until = now + DELEGATION_S
            body = f"<KeyInfo><Start>{moment(now - _EARLIER_S)}</Start><Expiry>{moment(until)}</Expiry></KeyInfo>"
            query = {"restype": "service", "comp": "userdelegationkey"}
            headers = {"Content-Type": "application/xml"}
            _, data = await self.ask("POST", "/", query=query, headers=headers, data=body.encode())
            self._lent = (_delegation_key(data), until)
        return self._lent[0]

    async def _signed(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], data: bytes | None
    ) -> dict[str, str]:
        date = formatdate(time.time(), usegmt=True)
        full = {"Content-Type": "application/octet-stream", **headers, "x-ms-date": date, "x-ms-version": VERSION}
        if data is not None:
            full["Content-Length"] = str(len(data))
        if self._login.key is not None:
            signature = request_signature(self.name, self._login.key, method, path, query, full)
            return {**full, "Authorization": signature}
        if self._login.token is None:
            return full
        return {**full, "Authorization": f"Bearer {await self._login.token()}"}


def _delegation_key(data: bytes) -> DelegationKey:
    try:
        found = ElementTree.fromstring(data.decode("utf-8-sig"))
    except ElementTree.ParseError as error:
        raise CarrierError(f"a delegation key cannot be read: {error}") from error
    names = ("SignedOid", "SignedTid", "SignedStart", "SignedExpiry", "SignedService", "SignedVersion", "Value")
    oid, tid, starts, expires, service, version, value = (found.findtext(name) or "" for name in names)
    return DelegationKey(
        object_id=oid, tenant_id=tid, starts=starts, expires=expires, service=service, version=version, value=value
    )
