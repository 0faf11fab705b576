"""Attempts on another machine, as the API shows them: a real sshd, real files that grow there, real HTTP and WebSockets."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from msgspec.structs import replace
from tests.support import sshd
from tests.support.fleet import DEADLINE_S
from tests.support.store import cases
from tests.support.web_client import Client, serving

from evalfleet.hosts.ssh import pool
from evalfleet.hosts.ssh.visit import live_files
from evalfleet.model import Policy
from evalfleet.store.open import open_store
from evalfleet.testing.pages import picture
from evalfleet.web import host_connections
from evalfleet.web.handlers import remote_attempts, screens

HELLO = b"RFB 003.008\n\x01\x00"
KEY = bytes([4, 1, 0, 0, 0, 0, 0, 0x61])
UPDATE = bytes([3, 1]) + b"\0" * 8


@dataclass
class There:
    """A host with one live attempt of a run, and a server that is asked for it."""

    home: Path
    client: Client
    box: sshd.Sshd
    line: sshd.Line
    attempt: Path  # its folder on the host

    @property
    def artifacts(self) -> Path:
        return self.attempt / "artifacts"

    async def ask(self, path: str = "", **more: Any) -> Any:
        return await self.client.ask(f"/api/v1/runs/latest/tasks/1/attempts/1{path}", **more)

    async def get(self, path: str = "") -> Any:
        return await self.client.get(f"runs/latest/tasks/1/attempts/1{path}")

    async def until(self, path: str, holds: Callable[[Any], object]) -> Any:
        """Ask until it holds: what was seen is good for a moment."""
        async with asyncio.timeout(DEADLINE_S):
            while not holds(reply := await self.ask(path)):  # noqa: ASYNC110 - a host tells nobody
                await asyncio.sleep(0.02)
        return reply.json

    def write(self, name: str, data: bytes) -> None:
        (self.artifacts / name).write_bytes(data)

    def step(self, number: int) -> None:
        """One more step of the film, with its screenshot."""
        self.write(f"step_{number}.png", picture(number))
        with (self.artifacts / "trajectory.jsonl").open("a") as file:
            file.write(
                json.dumps({"step": number, "screenshot": f"step_{number}.png", "note": f"step {number}"}) + "\n"
            )


@pytest.fixture
async def there(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[There]:
    monkeypatch.setattr(host_connections, "AGAIN_S", 0.1)
    for module in (remote_attempts, screens):
        monkeypatch.setattr(module, "FRESH_S", 0.05)
    with sshd.host(tmp_path, "box") as box:
        line = sshd.Line(box.port)
        listed = tmp_path / "hosts.toml"
        listed.write_text(sshd.hosts_file([box], port=line.port, ssh_config=False))
        with closing(open_store(home)) as store:
            store.pools.create("lab", "ssh", pool.settings(listed, trust_first_use=False))
            run = cases.drive(store, 2, Policy(workers=1, pool="lab"))
            claimed = store.attempts.claim(run, replace(cases.new_claim(1, worker="box-1"), host="box"))
            assert claimed is not None
        folder = box.spool / "attempts" / claimed.attempt.id
        (folder / "artifacts").mkdir(parents=True)
        try:
            async with serving(home) as client:
                yield There(home, client, box, line, folder)
        finally:
            line.close()


@dataclass
class Desktop:
    """Speaks as much RFB as a viewer needs to begin, and remembers what it hears."""

    heard: bytes = b""
    news: asyncio.Event = field(default_factory=asyncio.Event)
    writers: list[asyncio.StreamWriter] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        self.heard = b""
        writer.write(b"RFB 003.008\n")
        while data := await reader.read(4096):
            self.heard += data
            self.news.set()
        writer.close()

    async def hears(self, words: bytes) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while self.heard != words:
                self.news.clear()
                await self.news.wait()


@asynccontextmanager
async def desktop(folder: Path) -> AsyncIterator[Desktop]:
    one = Desktop()
    sock = socket.socket(socket.AF_UNIX)
    here = os.open(folder, os.O_PATH)
    sock.bind(f"/proc/self/fd/{here}/vnc.sock")  # its whole path is too long for a socket
    os.close(here)
    server = await asyncio.start_unix_server(one.serve, sock=sock)
    try:
        yield one
    finally:
        server.close()
        for writer in one.writers:
            writer.close()


@asynccontextmanager
async def watching(client: Client, path: str, token: str) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
    url = client.server.url.rstrip("/").replace("http", "ws", 1) + "/api/v1/" + path
    headers = {"Authorization": f"Bearer {token}"}
    async with client.session.ws_connect(url, headers=headers, protocols=["binary"]) as ws:
        yield ws


ATTEMPT = "runs/latest/tasks/1/attempts/1/vnc"


async def test_logs_film_files_and_screenshots_come_as_they_are_written(there: There):
    empty = await there.get()
    assert (empty["film"], empty["artifacts"], empty["logs"]) == (None, [], {"stdout": 0, "stderr": 0})
    assert (empty["desktop"], empty["problem"]) == ({"vnc": False, "screenshot": False}, None)
    assert (await there.ask("/screenshot")).status == 404

    log = there.attempt / "stdout.log"
    log.write_bytes(b"first\n")
    there.step(1)
    seen = await there.until("", lambda reply: reply.json["film"])
    assert [frame["note"] for frame in seen["film"]["frames"]] == ["step 1"]
    assert {one["path"]: one["size"] for one in seen["artifacts"]}["step_1.png"] == len(picture(1))
    assert seen["desktop"] == {"vnc": False, "screenshot": True}
    assert (await there.ask("/files/step_1.png")).body == picture(1)
    shot = await there.ask("/screenshot")
    assert (shot.status, shot.body, shot.headers["Content-Type"]) == (200, picture(1), "image/png")
    assert "sandbox" in shot.headers["Content-Security-Policy"]
    told = await there.get("/logs/stdout?tail=100")
    assert (told["text"], told["next"], told["live"]) == ("first\n", 6, True)

    log.write_bytes(b"first\n" + b"x" * 200_000 + b"\nlast\n")
    there.step(2)
    there.write("big.txt", b"y" * 600_000)
    more = await there.until("/logs/stdout?offset=6&limit=1000000", lambda reply: reply.json["text"])
    assert (more["text"], more["next"], more["size"]) == ("x" * 200_000 + "\nlast\n", 200_012, 200_012)
    assert (await there.get("/logs/stdout?tail=5"))["text"] == "last\n"
    assert (await there.get("/logs/stdout?offset=65530&limit=20"))["text"] == "x" * 20
    assert [frame["note"] for frame in (await there.get())["film"]["frames"]] == ["step 1", "step 2"]
    assert (await there.ask("/screenshot")).body == picture(2)
    big = await there.ask("/files/big.txt")
    assert (big.body, big.headers["Content-Type"]) == (b"y" * 600_000, "text/plain; charset=utf-8")
    part = await there.ask("/files/big.txt", Range="bytes=10-19")
    assert (part.status, part.body) == (206, b"y" * 10)
    assert (await there.client.get("runs/latest/tasks/1"))["attempt_list"][0]["live"]


async def test_nothing_but_the_attempts_own_files_can_be_had(there: There):
    secret = there.box.home / "secret.txt"
    secret.write_text("secret")
    (there.attempt / "task.json").write_text("{}")
    (there.artifacts / "link.txt").symlink_to(secret)
    (there.artifacts / "folder").symlink_to(there.box.home)
    os.mkfifo(there.artifacts / "pipe.txt")
    there.write("page.html", b"<script>alert(1)</script>")
    assert [one["path"] for one in (await there.get())["artifacts"]] == ["page.html"]
    hostile = [
        "link.txt",
        "folder/secret.txt",
        "pipe.txt",
        "..%2Ftask.json",
        "%2e%2e/task.json",
        "/etc/passwd",
        "a%00b",
    ]
    for name in hostile:
        assert (await there.ask(f"/files/{name}")).status == 404, name
    page = await there.ask("/files/page.html")
    assert (page.headers["Content-Type"], "sandbox" in page.headers["Content-Security-Policy"]) == (
        "application/octet-stream",
        True,
    )
    (there.attempt / "stdout.log").symlink_to(secret)
    assert (await there.get("/logs/stdout"))["text"] == ""


async def test_ten_readers_of_one_log_cost_one_connection_and_few_questions(
    there: There, monkeypatch: pytest.MonkeyPatch
):
    asked: list[str] = []
    real = live_files.LiveFilesClient._ask  # pyright: ignore[reportPrivateUsage]

    async def counted(self: live_files.LiveFilesClient, question: dict[str, Any]) -> Any:
        asked.append(question["do"])
        return await real(self, question)

    monkeypatch.setattr(live_files.LiveFilesClient, "_ask", counted)
    (there.attempt / "stdout.log").write_bytes(b"line\n" * 1000)
    told = await asyncio.gather(*(there.get(f"/logs/stdout?offset={n}") for n in range(10)))
    assert {one["next"] for one in told} == {5000}
    assert sorted(asked) == ["look", "read"]
    assert len(there.line._ends) == 2, "one connection, both ends of it"  # pyright: ignore[reportPrivateUsage]


async def test_a_reader_watches_and_an_operator_types(there: There):
    client = there.client
    async with desktop(there.attempt) as one:
        assert (await there.get())["desktop"]["vnc"]
        async with watching(client, ATTEMPT, client.reader) as ws:
            assert await ws.receive_bytes(timeout=DEADLINE_S) == b"RFB 003.008\n"
            for word in (HELLO, KEY, UPDATE, KEY):
                await ws.send_bytes(word)
            await one.hears(HELLO[:-1] + b"\x01" + UPDATE)
        with pytest.raises(aiohttp.WSServerHandshakeError, match="403"):
            async with watching(client, f"{ATTEMPT}?control=1", client.reader):
                pass
        async with watching(client, f"{ATTEMPT}?control=1", client.operator) as ws:
            await ws.receive_bytes(timeout=DEADLINE_S)
            await ws.send_bytes(HELLO + KEY)
            await one.hears(HELLO + KEY)
            one.writers[-1].close()
            assert (await ws.receive(timeout=DEADLINE_S)).data == 4001, "the desktop is gone"
        page = await client.get("runs/latest/events?type=run.requested")
        assert [event["data"]["verb"] for event in page["events"]] == ["take_over"]


async def test_a_link_in_the_place_of_the_desktop_is_not_followed(there: There, tmp_path: Path):
    (tmp_path / "elsewhere").mkdir()
    async with desktop(tmp_path / "elsewhere") as other, desktop(there.attempt):
        assert (await there.get())["desktop"]["vnc"]
        (there.attempt / "vnc.sock").unlink()
        (there.attempt / "vnc.sock").symlink_to(tmp_path / "elsewhere" / "vnc.sock")  # after it was looked at
        answer = await there.ask("/vnc")
        assert (answer.status, "does not answer" in answer.json["error"]["message"]) == (404, True)
        assert not other.writers


async def test_a_host_that_is_away_is_told_soon_and_stops_nobody(there: There, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(host_connections, "ANSWER_S", 1.0)
    (there.attempt / "stdout.log").write_bytes(b"line\n")
    assert (await there.get("/logs/stdout"))["text"] == "line\n"
    there.line.freeze()
    await asyncio.sleep(0.1)  # what was seen is old now
    begun = time.monotonic()
    waiting = asyncio.gather(there.ask("/logs/stdout"), there.ask("/screenshot"), there.ask(), there.ask("/vnc"))
    for _ in range(3):
        assert (await there.client.ask("/api/v1/runs/latest")).status == 200
    assert not waiting.done(), "others are answered meanwhile"
    log, shot, whole, vnc = await waiting
    assert time.monotonic() - begun < 8.0
    assert {log.status, shot.status, vnc.status} == {503}
    assert "host box: has not answered" in log.json["error"]["message"]
    assert (whole.status, "has not answered" in whole.json["problem"]) == (200, True), "the store knows the rest"
    there.box.stop()
    there.line.thaw()
    there.line.cut()
    gone = await there.until("/logs/stdout", lambda reply: "has not answered" not in reply.json["error"]["message"])
    assert "host box: " in gone["error"]["message"]
    there.box.start()
    back = await there.until("/logs/stdout", lambda reply: reply.status == 200)
    assert back["text"] == "line\n", "it is asked again when it is back"


async def test_a_host_with_another_key_is_not_looked_at(there: There):
    there.box.stop()
    there.box.new_host_key()
    there.box.start()
    answer = await there.ask("/logs/stdout")
    assert (answer.status, "its key has changed" in answer.json["error"]["message"]) == (503, True)


async def test_nobody_looks_and_the_connection_is_closed(there: There, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(host_connections, "IDLE_S", 0.1)
    monkeypatch.setattr(host_connections, "_LOOK_S", 0.05)
    await there.get("/logs/stdout")
    async with asyncio.timeout(DEADLINE_S):
        while there.box.served():  # noqa: ASYNC110 - a process tells nobody
            await asyncio.sleep(0.02)


async def test_the_screen_of_a_pools_host(there: There):
    client = there.client
    for what in ("vnc", "screenshot"):
        assert (await client.ask(f"/api/v1/pools/lab/hosts/nobody/{what}")).status == 404
        none = await client.ask(f"/api/v1/pools/lab/hosts/box/{what}")
        assert (none.status, "host box " in none.json["error"]["message"]) == (404, True)
    there.write("now.png", picture(7))
    (there.attempt / "journal.jsonl").write_text('{"event":0,"type":"launched"}\n')
    await asyncio.sleep(0.1)  # what was seen is old now
    shot = await client.ask("/api/v1/pools/lab/hosts/box-1/screenshot", token=client.reader)
    assert (shot.status, shot.body) == (200, picture(7))
    async with desktop(there.attempt) as one:
        async with watching(client, "pools/lab/hosts/box/vnc", client.reader) as ws:
            await ws.receive_bytes(timeout=DEADLINE_S)
            await ws.send_bytes(HELLO + KEY)
            await one.hears(HELLO[:-1] + b"\x01")
        with pytest.raises(aiohttp.WSServerHandshakeError, match="403"):
            async with watching(client, "pools/lab/hosts/box/vnc?control=1", client.reader):
                pass
        async with watching(client, "pools/lab/hosts/box/vnc?control=1", client.operator) as ws:
            await ws.receive_bytes(timeout=DEADLINE_S)
            await ws.send_bytes(HELLO + KEY)
            await one.hears(HELLO + KEY)
    page = await client.get("pools/lab")
    assert page["name"] == "lab"
    with closing(open_store(there.home)) as store:
        events = [event.data for event in store.events.of_run("pool:lab") if event.type == "pool.requested"]
    assert [(event["verb"], event["host"]) for event in events] == [("take_over", "box")]


@pytest.mark.parametrize("kind", ["rfb", "websockify", "page"])
async def test_the_screen_on_a_port_of_the_host(home: Path, tmp_path: Path, kind: str):
    """As WAA's container shows it: behind a page, in a WebSocket; or as VNC is usually served."""
    one = Desktop()
    async with on_port(one, kind) as port:
        (tmp_path / "evalfleet.toml").write_text(f"[waa]\nscreen_port = {port}\n")
        with sshd.host(tmp_path, "box") as box:
            listed = tmp_path / "hosts.toml"
            listed.write_text(sshd.hosts_file([box], ssh_config=False))
            with closing(open_store(home)) as store:
                store.pools.create("lab", "ssh", pool.settings(listed, trust_first_use=False))
            async with serving(home) as client:
                if kind == "page":
                    none = await client.ask("/api/v1/pools/lab/hosts/box/vnc")
                    assert (none.status, "shows no screen" in none.json["error"]["message"]) == (404, True)
                    return
                async with watching(client, "pools/lab/hosts/box/vnc?control=1", client.operator) as ws:
                    assert await ws.receive_bytes(timeout=DEADLINE_S) == b"RFB 003.008\n"
                    words = HELLO + bytes([6, 0, 0, 0]) + (100_000).to_bytes(4, "big") + b"t" * 100_000
                    await ws.send_bytes(words)
                    await one.hears(words)


@asynccontextmanager
async def on_port(one: Desktop, kind: str) -> AsyncIterator[int]:
    if kind == "rfb":
        server = await asyncio.start_server(one.serve, "127.0.0.1", 0)
        yield server.sockets[0].getsockname()[1]
        server.close()
        return

    async def websockify(request: web.Request) -> web.StreamResponse:
        ws = web.WebSocketResponse(protocols=["binary"], max_msg_size=1 << 22)
        await ws.prepare(request)
        assert ws.ws_protocol == "binary"
        await ws.ping()
        await ws.send_bytes(b"RFB 003.008\n")
        async for message in ws:
            one.heard += message.data
            one.news.set()
        return ws

    app = web.Application()
    if kind == "websockify":
        app.router.add_get("/websockify", websockify)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    assert runner.addresses
    yield runner.addresses[0][1]
    await runner.cleanup()
