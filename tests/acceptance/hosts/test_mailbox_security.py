"""Nothing readable lies in a box, and nobody but its home and its pilot can use it, whatever was stolen."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from tests.support.fleet import wait_for
from tests.support.pilots import PilotProcess, in_an_hour, pilot, said_hello, start_pilot
from tests.support.runner import a_spec

from evalfleet.core.hosts.health import OtherWay
from evalfleet.errors import HostRefused, HostUnreachable
from evalfleet.hosts.base import Host, Inbox, Launch
from evalfleet.hosts.mailbox.backend import MailboxBackend, MailboxHostSpec
from evalfleet.hosts.mailbox.boxes import Box, FolderBoxes
from evalfleet.hosts.mailbox.carrier import FolderCarrier
from evalfleet.hosts.mailbox.home_key import home_identity
from evalfleet.layout import Home
from evalfleet.pilot import names
from evalfleet.pilot.keys import Identity, Offer, PublicIdentity, introduction, new_secret, signed
from evalfleet.testing.backend_contract import Watcher

pytestmark = pytest.mark.anyio
SECRET = "plutonium-7f3a9c"
SPEC = MailboxHostSpec(name="w1", generation=1, slots=2)


class KeepingCarrier(FolderCarrier):
    """Keeps every version of every object that passes, as one who can read the storage could."""

    def __init__(self, folder: str) -> None:
        super().__init__(folder)
        self.seen: list[tuple[str, bytes]] = []

    async def put(self, name: str, data: bytes, *, new: bool = False) -> None:
        await super().put(name, data, new=new)
        self.seen.append((name, data))

    async def get(self, name: str, start: int = 0, limit: int | None = None) -> bytes | None:
        data = await super().get(name, start, limit)
        if data is not None:
            self.seen.append((name, data))
        return data


@pytest.fixture
async def box(tmp_path: Path) -> Box:
    return await FolderBoxes(tmp_path / "boxes").open("w1", 1, in_an_hour())


@pytest.fixture
async def node(home: Path, tmp_path: Path, box: Box) -> AsyncIterator[PilotProcess]:
    with pilot(Home(home), box, tmp_path / "node") as process:
        yield process


@asynccontextmanager
async def connected(backend: MailboxBackend, epoch: int = 1) -> AsyncIterator[tuple[Host, Watcher]]:
    inbox = Inbox()
    async with backend.acquire("run1", epoch, inbox) as host:
        yield host, Watcher(inbox)


def sh(script: str, attempt: str = "run1.1.1", **fields) -> Launch:
    return Launch(
        **{"attempt_id": attempt, "spec": a_spec("sh", "-c", script), "secrets": {}, "valid_for_s": 60.0, **fields}
    )


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


async def test_a_secret_is_in_no_object_ever(home: Path, tmp_path: Path, box: Box, node: PilotProcess):
    carrier = KeepingCarrier(box.address)
    backend = await said_hello(MailboxBackend(Home(home), SPEC, carrier))
    (tmp_path / "file").write_text(f"{SECRET} in a file of the run")
    script = 'echo "$TOKEN"; (echo "$TOKEN"; cat file) > "$EVALFLEET_ARTIFACTS/leak"; kill -9 $PPID; sleep 60'
    async with connected(backend) as (host, watcher):
        await host.launch([sh(script, secrets={"TOKEN": SECRET}, files={"file": tmp_path / "file"})])
        await watcher.until("run1.1.1", "launched")
        with anyio.fail_after(30):
            await host.lost()  # the runner died before it could remove the secret from the output
    async with connected(backend, epoch=2) as (host, watcher):
        assert await host.observe("run1.1.1", -1)
        await watcher.until("run1.1.1")
        await host.collect("run1.1.1", tmp_path / "there", {"TOKEN": SECRET})
        kept = files(Path(box.address))
        assert "run1.1.1.tar" in kept
        assert [name for name, data in kept.items() if SECRET.encode() in data] == []
    assert len(carrier.seen) > 20
    token = home_identity(Home(home)).token("w1", 1)
    for word in (SECRET, "EVALFLEET_ARTIFACTS", token):
        assert [name for name, data in carrier.seen if word.encode() in data] == []
    assert token not in node.log()
    collected = b"".join(files(tmp_path / "there").values())
    assert b"in a file of the run" in collected
    assert SECRET.encode() not in collected


async def test_a_second_pilot_in_the_box_ends(home: Path, tmp_path: Path, box: Box, node: PilotProcess):
    backend = await said_hello(MailboxBackend(Home(home), SPEC, FolderCarrier(box.address)))
    other = await FolderBoxes(tmp_path / "boxes").open("w2", 1, in_an_hour())
    # A node that has stolen the way into another box; and one that was given the same job once more.
    for name, owner in (("thief", other), ("again", box)):
        thief = start_pilot(Home(home), owner, tmp_path / name, grant=box.grant)
        try:
            assert thief.process.wait(60) == 3
            assert "another pilot" in thief.log()
        finally:
            thief.kill()
    async with connected(backend) as (host, watcher):
        await host.launch([sh("true")])
        await watcher.until("run1.1.1")


async def test_a_thief_in_an_empty_box_is_not_believed(home: Path, tmp_path: Path, box: Box):
    boxes = FolderBoxes(tmp_path / "boxes")
    other = await boxes.open("w2", 1, in_an_hour())
    thief = start_pilot(Home(home), other, tmp_path / "thief", grant=box.grant)
    try:
        wait_for(lambda: "hello" in files(Path(box.address)), "its hello")
        backend = MailboxBackend(Home(home), SPEC, boxes.carrier(box.address))
        with pytest.raises(HostRefused, match="token"):
            await backend.facts()
        with pytest.raises(HostRefused, match="token"):
            async with connected(backend):
                pass
        assert await backend.ask_otherwise() is OtherWay.SILENT
    finally:
        thief.kill()


async def test_a_pinned_pilot_cannot_be_replaced(home: Path, box: Box, node: PilotProcess):
    carrier = FolderCarrier(box.address)
    pinned = []
    await said_hello(MailboxBackend(Home(home), SPEC, carrier, pin=pinned.append))
    thief = Identity(new_secret())
    token = home_identity(Home(home)).token("w1", 1)  # stolen, too
    await carrier.put("hello", introduction(thief, token, {"generation": 1}))
    backend = MailboxBackend(Home(home), SPEC, carrier, pinned[0])
    for forged, kind in (("beat", {"number": 1, "at": 0.0, "started_at": 0.0}), ("bye", {"at": 0.0, "reason": "?"})):
        await carrier.put(forged, signed(thief, forged, {"generation": 1, **kind}))
    async with connected(backend) as (host, watcher):  # with the pinned one, and not told that it has ended
        await host.launch([sh("true")])
        await watcher.until("run1.1.1")


async def test_what_was_recorded_cannot_be_played_again(home: Path, box: Box, node: PilotProcess, tmp_path: Path):
    carrier = KeepingCarrier(box.address)
    backend = await said_hello(MailboxBackend(Home(home), SPEC, carrier))
    marks = tmp_path / "marks"
    async with connected(backend) as (host, watcher):
        await host.launch([sh(f"echo ran >> {marks}")])
        await watcher.until("run1.1.1")
        await host.collect("run1.1.1", tmp_path / "there", {})
        await host.forget(["run1.1.1"])
    recorded = [one for one in carrier.seen if one[0].startswith(("open/", "to/"))]
    assert {name.split("/")[0] for name, _ in recorded} == {"open", "to"}
    async with connected(backend, epoch=2) as (host, watcher):
        newest = max(names.session_of(name) for name, _ in await carrier.list("open/"))
        for name, data in recorded:  # as it was, into the live session, and as the next session
            kind, _, *rest = name.split("/")
            await carrier.put(name, data)
            if kind == "to":
                await carrier.put(f"{names.to_pilot(newest)}{rest[0]}", data)
        first = next(data for name, data in recorded if name.startswith("open/"))
        await carrier.put(names.opened(newest + 1), first)
        wait_for(lambda: f"session {newest + 1} refused" in node.log(), "the refusal")
        await host.launch([sh("true", "run1.2.1")])
        await watcher.until("run1.2.1")
        assert [one.attempt_id for one in await host.known()] == ["run1.2.1"]
    assert marks.read_text() == "ran\n"


async def test_another_home_commands_nothing(home: Path, tmp_path: Path, box: Box, node: PilotProcess):
    carrier = FolderCarrier(box.address)
    pinned = []
    await said_hello(MailboxBackend(Home(home), SPEC, carrier, pin=pinned.append))
    stranger = Home(tmp_path / "stranger")
    with pytest.raises(HostRefused, match="token"):
        await MailboxBackend(stranger, SPEC, carrier).facts()
    pilot_identity = PublicIdentity(pinned[0].identity)
    await carrier.put(names.opened(1), Offer(home_identity(stranger), pilot_identity, 1, "runner").document(1))
    wait_for(lambda: "session 1 refused" in node.log(), "the refusal")
    async with connected(MailboxBackend(Home(home), SPEC, carrier, pinned[0])) as (host, _):
        assert await host.known() == []


async def test_a_forged_archive_is_not_collected(home: Path, tmp_path: Path, box: Box, node: PilotProcess):
    backend = await said_hello(MailboxBackend(Home(home), SPEC, FolderCarrier(box.address)))
    async with connected(backend) as (host, watcher):
        await host.launch([sh("true"), sh("true", "run1.2.1")])
        for attempt in ("run1.1.1", "run1.2.1"):
            await watcher.until(attempt)
        folder = Path(box.address) / "attempts"
        wait_for(lambda: (folder / "run1.1.1.json").exists() and (folder / "run1.2.1.json").exists(), "the uploads")
        for suffix in ("tar", "json"):  # those of another attempt
            (folder / f"run1.1.1.{suffix}").write_bytes((folder / f"run1.2.1.{suffix}").read_bytes())
            with pytest.raises(HostUnreachable):
                await host.collect("run1.1.1", tmp_path / "there", {})
    assert not (tmp_path / "there").exists()
