"""Every carrier keeps the same promises, on both sides; and the right to one box reaches no other."""

from __future__ import annotations

import base64
import json
import os
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import anyio.to_thread
import pytest
from tests.support.azurite import KEY, Azurite, azurite

from evalfleet.emulator import tls
from evalfleet.emulator.storage import azurite as emulated_azurite
from evalfleet.hosts.mailbox.blobs.account import BlobLogin
from evalfleet.hosts.mailbox.blobs.boxes import GRACE_S, BlobBoxes, BlobStorage
from evalfleet.hosts.mailbox.boxes import Box, Boxes, BoxStorage, FolderBoxes, FolderStorage, box_owner
from evalfleet.hosts.mailbox.carrier import Carrier
from evalfleet.pilot import carrier as node
from evalfleet.pilot.carrier import BLOCK, BoxClosed, open_carrier

pytestmark = pytest.mark.anyio


def in_an_hour() -> float:
    return time.time() + 3600


@pytest.fixture(scope="session")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Azurite]:
    with azurite(tmp_path_factory.mktemp("azurite") / "data") as server:
        yield server


@pytest.fixture(params=["folder", "blobs"])
async def boxes(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Boxes]:
    if request.param == "folder":
        yield FolderBoxes(tmp_path / "boxes")
        return
    found = BlobBoxes(request.getfixturevalue("storage").url, BlobLogin(key=KEY), str(tmp_path))
    try:
        yield found
    finally:
        await found.aclose()


class NodeSide:
    """The pilot's carrier, asked as the controller's is."""

    def __init__(self, inner: node.Carrier) -> None:
        self.inner = inner
        self.pace, self.traffic = inner.pace, inner.traffic

    async def put(self, name: str, data: bytes, *, new: bool = False) -> None:
        await anyio.to_thread.run_sync(partial(self.inner.put, name, data, new=new))

    async def get(self, name: str, start: int = 0, limit: int | None = None) -> bytes | None:
        return await anyio.to_thread.run_sync(self.inner.get, name, start, limit)

    async def list(self, prefix: str) -> list[tuple[str, int]]:
        return await anyio.to_thread.run_sync(self.inner.list, prefix)

    async def delete(self, names: list[str]) -> None:
        await anyio.to_thread.run_sync(self.inner.delete, names)


def sides(boxes: Boxes, box: Box) -> list[Carrier]:
    return [boxes.carrier(box.address), NodeSide(open_carrier(box.grant))]  # type: ignore[list-item]


async def test_objects(boxes: Boxes):
    box = await boxes.open("w1", 1, in_an_hour())
    ours, theirs = sides(boxes, box)
    for writer, reader in ((ours, theirs), (theirs, ours)):
        await writer.put("to/1/a", b"0123456789")
        assert await reader.get("to/1/a") == b"0123456789"
        assert await reader.get("to/1/a", 7) == b"789"
        assert await reader.get("to/1/a", 2, 3) == b"234"
        assert await reader.get("to/1/a", 10, 3) == b""
        await writer.put("to/1/a", b"other")
        assert await reader.get("to/1/a") == b"other"
        with pytest.raises(FileExistsError):
            await writer.put("to/1/a", b"new", new=True)
        await writer.put("to/1/b", b"", new=True)
        await writer.put("from/1/b", b"x" * 5)
        assert list(await reader.list("to/")) == [("to/1/a", 5), ("to/1/b", 0)]
        assert list(await reader.list("to/1/b")) == [("to/1/b", 0)]
        await reader.delete(["to/1/a", "to/1/b", "to/1/c", "from/1/b"])
        assert list(await reader.list("")) == []
        assert await reader.get("to/1/a") is None
        for name in ("", "../x", "/x", "a/../b", "a//b", ".x", "a b"):
            with pytest.raises(ValueError, match="name"):
                await writer.put(name, b"")


async def test_an_upload_appears_when_it_is_finished(boxes: Boxes):
    box = await boxes.open("w1", 1, in_an_hour())
    ours, theirs = sides(boxes, box)
    data = os.urandom(2 * BLOCK + 5)
    for size in (0, 10, len(data)):

        def write(size: int = size) -> None:
            upload = theirs.inner.upload("attempts/a.tar")  # type: ignore[attr-defined]
            try:
                for at in range(0, size, 1 << 20):
                    upload.write(data[at : min(size, at + (1 << 20))])
                assert theirs.inner.get("attempts/a.tar") is None  # type: ignore[attr-defined]
                upload.finish()
            finally:
                upload.discard()

        await anyio.to_thread.run_sync(write)
        assert await ours.get("attempts/a.tar") == data[:size]
        await ours.delete(["attempts/a.tar"])
    assert list(await ours.list("")) == []


async def test_boxes_are_opened_again_listed_and_deleted(boxes: Boxes):
    first = await boxes.open("w1", 1, in_an_hour())
    await boxes.carrier(first.address).put("hello", b"x")
    again = await boxes.open("w1", 1, in_an_hour())
    assert again.address == first.address
    second = await boxes.open("w1", 2, in_an_hour())
    assert sorted(await boxes.list()) == sorted({first.address, second.address})
    assert await boxes.carrier(second.address).get("hello") is None
    for _ in range(2):
        await boxes.delete("w1", 1)
    assert list(await boxes.list()) == [second.address]
    for side in sides(boxes, first):
        with pytest.raises(BoxClosed):
            await side.get("hello")
        with pytest.raises(BoxClosed):
            await side.list("")
    await boxes.delete("w1", 2)


@pytest.mark.parametrize("kind", ["folder", "blobs"])
async def test_a_storage_knows_the_boxes_of_all_homes(request: pytest.FixtureRequest, tmp_path: Path, kind: str):
    owners = {owner: box_owner(*owner) for owner in (("a1", "p-1"), ("b2", "p-1"))}
    async with AsyncExitStack() as stack:
        if kind == "folder":
            pools: list[Boxes] = [FolderBoxes(tmp_path / owner) for owner in owners.values()]
            whole: BoxStorage = FolderStorage(tmp_path)
        else:
            url, login = request.getfixturevalue("storage").url, BlobLogin(key=KEY)
            pools = [BlobBoxes(url, login, owner) for owner in owners.values()]
            whole = BlobStorage(url, login)
            for one in (*pools, whole):
                stack.push_async_callback(one.aclose)  # type: ignore[union-attr]
        made = [await boxes.open("w-1", 2, in_an_hour()) for boxes in pools]
        found = {(box.home, box.pool): box for box in await whole.list() if box.home in ("a1", "b2")}
        assert {owner: box.address for owner, box in found.items()} == {
            owner: box.address for owner, box in zip(owners, made, strict=True)
        }
        assert whole.address("a1", "p-1", "w-1", 2) == made[0].address
        for _ in range(2):
            await whole.delete(found["a1", "p-1"])
        assert [len(await boxes.list()) for boxes in pools] == [0, 1]
        await pools[1].delete_at(made[1].address)
        assert not await pools[1].list()


async def test_a_grant_reaches_one_box_until_its_time(storage: Azurite, tmp_path: Path):
    boxes = BlobBoxes(storage.url, BlobLogin(key=KEY), str(tmp_path))
    try:
        mine, other = [await boxes.open(host, 1, in_an_hour()) for host in ("w1", "w2")]
        late = await boxes.open("w1", 1, time.time() - GRACE_S - 60)
        await boxes.carrier(other.address).put("to/1/a", b"secret")
        query = mine.grant.partition("?")[2]
        for grant in (
            f"{other.address}?{query}",
            late.grant,
            mine.address,
            mine.grant.replace("sp=rcwdl", "sp=racwdl"),
        ):
            thief = open_carrier(grant)
            for deed in (
                partial(thief.get, "to/1/a"),
                partial(thief.list, ""),
                partial(thief.put, "x", b""),
                partial(thief.delete, ["to/1/a"]),
            ):
                with pytest.raises(BoxClosed) as refused:
                    await anyio.to_thread.run_sync(deed)
                assert "sig=" not in str(refused.value)
        assert repr(mine).find("sig=") == -1
        stranger = BlobBoxes(storage.url, BlobLogin(key=KEY), f"{tmp_path}-other")
        assert list(await stranger.list()) == []
        await stranger.aclose()
    finally:
        await boxes.aclose()


def a_token() -> str:
    """As Entra ID gives them out, as far as Azurite looks."""
    now = int(time.time())
    claims = {
        "aud": "https://storage.azure.com",
        "iss": "https://sts.windows-ppe.net/ab1f708d-50f6-404c-a006-d71b2ac7a606/",
        "iat": now - 60,
        "nbf": now - 60,
        "exp": now + 3600,
        "oid": "23657296-5cd5-45b0-a809-d972a7f4dfe1",
        "tid": "dd0d0df1-06c3-436c-8034-4b9a153097ce",
    }
    head = {"alg": "HS256", "typ": "JWT"}
    return ".".join(
        base64.urlsafe_b64encode(part).decode().rstrip("=")
        for part in (json.dumps(head).encode(), json.dumps(claims).encode(), b"unsigned")
    )


async def test_a_signed_in_identity_lends_a_key(storage: Azurite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    _, certificate = tls.made(tmp_path)
    asked = []

    async def token() -> str:
        asked.append(1)
        return a_token()

    secure = ("--oauth", "basic", "--cert", str(certificate), "--key", str(tmp_path / "emulator.key"))
    async with emulated_azurite(tmp_path / "data", *secure) as base:
        url = f"{base}/devstoreaccount1"
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        boxes = BlobBoxes(url, BlobLogin(token=token), "pool", certificate=str(certificate))
        try:
            mine, other = [await boxes.open(host, 1, in_an_hour()) for host in ("w1", "w2")]
            assert "skoid=" in mine.grant
            ours, theirs = sides(boxes, mine)
            await theirs.put("hello", b"x", new=True)
            assert await ours.get("hello") == b"x"
            thief = open_carrier(f"{other.address}?{mine.grant.partition('?')[2]}")
            with pytest.raises(BoxClosed):
                await anyio.to_thread.run_sync(thief.list, "")
            assert asked
        finally:
            await boxes.aclose()
