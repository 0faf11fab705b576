"""Boxes as containers of a storage account: one container per generation of a pilot, and a signed address for it alone."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from xml.etree import ElementTree

from evalfleet.hosts.mailbox.blobs.account import BlobAccount, BlobLogin
from evalfleet.hosts.mailbox.boxes import Box, KeptBox, box_name, box_owner, kept_box
from evalfleet.pilot.carrier import EXISTS, NOT_THERE, CarrierError, Traffic, checked, parse_list
from evalfleet.pilot.pace import BLOBS

GRACE_S = 900.0  # after `stops_at`, in which a pilot uploads what ended last
_LONGEST = 63
_SLUG = re.compile(r"[^a-z0-9]+")
_PAST_END = 416


class BlobCarrier:
    """Implements `Carrier` over one container."""

    pace = BLOBS

    def __init__(self, account: BlobAccount, container: str) -> None:
        self._account = account
        self._container = container
        self.traffic = Traffic()

    async def put(self, name: str, data: bytes, *, new: bool = False) -> None:
        self.traffic.write()
        headers = {"x-ms-blob-type": "BlockBlob", **({"If-None-Match": "*"} if new else {})}
        passes = EXISTS if new else ()
        status, _ = await self._account.ask("PUT", self._path(name), headers=headers, data=data, passes=passes)
        if status in EXISTS:
            raise FileExistsError(name)

    async def get(self, name: str, start: int = 0, limit: int | None = None) -> bytes | None:
        self.traffic.read()
        headers: dict[str, str] = {}
        if start or limit is not None:
            headers["Range"] = f"bytes={start}-{'' if limit is None else start + limit - 1}"
        status, data = await self._account.ask("GET", self._path(name), headers=headers, passes=(NOT_THERE, _PAST_END))
        return None if status == NOT_THERE else b"" if status == _PAST_END else data

    async def list(self, prefix: str) -> Sequence[tuple[str, int]]:
        found: list[tuple[str, int]] = []
        marker = ""
        while True:
            self.traffic.write()
            query = {"restype": "container", "comp": "list", "prefix": prefix, "marker": marker}
            page, marker = parse_list((await self._account.ask("GET", f"/{self._container}", query=query))[1])
            found += page
            if not marker:
                return found

    async def delete(self, names: Iterable[str]) -> None:
        for name in names:
            self.traffic.deletion()
            await self._account.ask("DELETE", self._path(name), passes=(NOT_THERE,))

    def _path(self, name: str) -> str:
        return f"/{self._container}/{checked(name)}"


class BlobBoxes:
    """Implements `Boxes`."""

    def __init__(self, url: str, login: BlobLogin, owner: str, certificate: str | None = None) -> None:
        """
        Args:
            url: of the account.
            owner: of the boxes, such as HOME-POOL; others with the same account do not see them.
            certificate: as for `BlobAccount`.
        """
        self._account = BlobAccount(url, login, certificate)
        self._owner = owner

    async def open(self, host: str, generation: int, stops_at: float) -> Box:
        container = self.container(host, generation)
        headers = {"x-ms-meta-evalfleet": self._owner}
        query = {"restype": "container"}
        status, _ = await self._account.ask(
            "PUT", f"/{container}", query=query, headers=headers, data=b"", passes=EXISTS, about_container=True
        )
        if status in EXISTS:  # of an earlier call; but not one that is being deleted
            await self._account.ask("GET", f"/{container}", query=query)
        return Box(
            host=host,
            generation=generation,
            address=f"{self._account.url}/{container}",
            grant=await self._account.grant(container, stops_at + GRACE_S),
            stops_at=stops_at,
        )

    async def delete(self, host: str, generation: int) -> None:
        await self.delete_at(f"{self._account.url}/{self.container(host, generation)}")

    async def delete_at(self, address: str) -> None:
        await _delete(self._account, address)

    async def list(self) -> Sequence[str]:
        return [address for owner, address in await _owned(self._account) if owner == self._owner]

    def carrier(self, address: str) -> BlobCarrier:
        return BlobCarrier(self._account, address.rpartition("/")[2])

    async def aclose(self) -> None:
        await self._account.aclose()

    def container(self, host: str, generation: int) -> str:
        """A name that the service accepts, and that no other owner, host or generation has."""
        return _container(self._owner, host, generation)


class BlobStorage:
    """Implements `BoxStorage` for a storage account. `aclose` closes its connections."""

    def __init__(self, url: str, login: BlobLogin, certificate: str | None = None) -> None:
        self._account = BlobAccount(url, login, certificate)

    async def list(self) -> Sequence[KeptBox]:
        return [kept_box(owner, address) for owner, address in await _owned(self._account)]

    async def delete(self, box: KeptBox) -> None:
        await _delete(self._account, box.address)

    def address(self, home: str, pool: str, host: str, generation: int) -> str:
        return f"{self._account.url}/{_container(box_owner(home, pool), host, generation)}"

    async def aclose(self) -> None:
        await self._account.aclose()


def _container(owner: str, host: str, generation: int) -> str:
    whole = f"{owner}/{box_name(host, generation)}"
    digest = hashlib.sha256(whole.encode()).hexdigest()[:12]
    slug = _SLUG.sub("-", whole.lower())[: _LONGEST - len(digest) - 4].strip("-")
    return f"ef-{slug}-{digest}"


async def _delete(account: BlobAccount, address: str) -> None:
    container = address.rpartition("/")[2]
    query = {"restype": "container"}
    await account.ask("DELETE", f"/{container}", query=query, passes=(NOT_THERE, *EXISTS), about_container=True)


async def _owned(account: BlobAccount) -> list[tuple[str, str]]:
    """Owners and addresses of all boxes in the account."""
    found: list[tuple[str, str]] = []
    marker = ""
    while True:
        query = {"comp": "list", "prefix": "ef-", "include": "metadata", "marker": marker}
        _, data = await account.ask("GET", "/", query=query)
        try:
            page = ElementTree.fromstring(data.decode("utf-8-sig"))
        except ElementTree.ParseError as error:
            raise CarrierError(f"a list of containers cannot be read: {error}") from error
        for one in page.iter("Container"):
            owner = {each.tag.lower(): each.text for each in one.iterfind("Metadata/*")}.get("evalfleet")
            if owner:
                found.append((owner, f"{account.url}/{one.findtext('Name')}"))
        marker = page.findtext("NextMarker") or ""
        if not marker:
            return found
