"""What a stranger, a guest or a thief of cookies can do to the others at a server: nothing that lasts."""

from __future__ import annotations

import asyncio
import logging
import resource
import shutil
import socket
import subprocess
from collections.abc import AsyncGenerator
from contextlib import closing
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import pytest
from tests.support.store import cases
from tests.support.web_client import Client, serving

from evalfleet.daemon import file_limit
from evalfleet.daemon.file_limit import lower_file_limit, raise_file_limit
from evalfleet.model import Role, Verb
from evalfleet.store.open import open_store
from evalfleet.testing.clock import FakeClock
from evalfleet.web import feed, server
from evalfleet.web.handlers import desktops
from evalfleet.web.handlers import feed as streaming
from evalfleet.web.security import tokens
from evalfleet.web.security.connections import ConnectionLimit
from evalfleet.web.server import Options


@pytest.fixture
async def client(home: Path) -> AsyncGenerator[Client]:
    async with serving(home) as client:
        yield client


# Tokens


@pytest.mark.parametrize("way", ["header", "address"])
async def test_wrong_tokens_lock_out_nobody_who_has_one(client: Client, way: str):
    reply = None
    for turn in range(80):
        bad = f"ef_{turn}"
        reply = await (
            client.ask("/api/v1/me", token=bad) if way == "header" else client.ask(f"/?token={bad}", token=None)
        )
    assert reply is not None
    assert reply.status == 429, "who guesses is slowed down"
    assert (await client.ask("/api/v1/me")).status == 200
    assert (await client.ask("/api/v1/me", token=None, Cookie=await client.cookie(client.reader))).status == 200


async def test_a_cookie_is_no_token(client: Client):
    cookie = await client.cookie()
    name, _, session = cookie.partition("=")
    assert client.operator not in cookie
    assert (await client.ask("/api/v1/me", token=None, Cookie=cookie)).status == 200
    assert (await client.ask("/api/v1/me", token=session)).status == 401
    assert (await client.ask(f"/?token={session}", token=None)).status == 401
    assert (await client.ask("/api/v1/me", token=None, Cookie=f"{name}={client.operator}")).status == 401
    forged = session[:-1] + ("0" if session[-1] != "0" else "1")
    assert (await client.ask("/api/v1/me", token=None, Cookie=f"{name}={forged}")).status == 401


async def test_a_session_is_worthless_at_another_server(home: Path, tmp_path: Path):
    async with serving(home) as one, serving(home) as same_home, serving(tmp_path / "other") as other:
        session = (await one.cookie()).partition("=")[2]
        for elsewhere in (same_home, other):
            name = elsewhere.server.site.gate.entrance.cookie
            assert (await elsewhere.ask("/api/v1/me", token=None, Cookie=f"{name}={session}")).status == 401


async def test_a_session_ends_with_its_token_and_outlives_the_server(home: Path):
    async with serving(home) as client:
        port = client.server.site.gate.entrance.port
        cookie = await client.cookie()
    async with serving(home, Options(port=port, drive=False)) as again:
        assert (await again.ask("/api/v1/me", token=None, Cookie=cookie)).status == 200
        with closing(open_store(home)) as store:
            for token in [one for one in store.tokens.all() if one.name == "boss"]:
                store.tokens.revoke(token.id)
        again.server.site.gate._read_at = float("-inf")  # a second later
        assert (await again.ask("/api/v1/me", token=None, Cookie=cookie)).status == 401


async def test_a_restart_takes_the_place_of_the_former_token(home: Path):
    async with serving(home) as client:
        port = client.server.site.gate.entrance.port
        first = client.server.address.partition("token=")[2]
        cookie = await client.cookie(first)
    async with serving(home, Options(port=port, drive=False)) as again:
        assert (await again.ask("/api/v1/me", token=first)).status == 401
        assert (await again.ask("/api/v1/me", token=again.server.address.partition("token=")[2])).status == 200
        assert (await again.ask("/api/v1/me", token=None, Cookie=cookie)).status == 200, "an open page goes on"
    with closing(open_store(home)) as store:
        [token] = [token for token in store.tokens.all() if token.name == "serve"]
        assert token.id.startswith(f"serve-{port}-")
        store.tokens.revoke(token.id)
    async with serving(home, Options(port=port, drive=False)) as anew:
        assert (await anew.ask("/api/v1/me", token=None, Cookie=cookie)).status == 401, "a revoked session stays so"


def test_an_expired_start_token_comes_back_under_another_id(home: Path):
    clock = FakeClock()
    with closing(open_store(home, clock)) as store:
        store.tokens.renew("serve-80", tokens.START_NAME, Role.OPERATOR, "x", None)  # as they were named once
        ids: list[str] = []
        for later_s in (0.0, 1.0, tokens.START_LIFE_S):
            clock.advance(later_s)
            tokens.restart(store, 80)
            ids += [token.id for token in store.tokens.all() if token.name == tokens.START_NAME]
        assert ids[0] == ids[1] != ids[2]
        assert len(ids) == 3


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
async def test_another_page_cannot_make_somebody_another(client: Client, site: str):
    address = f"/?token={client.reader}&tab=2"
    reply = await client.ask(address, token=None, Sec_Fetch_Site=site)
    assert (reply.status, "Set-Cookie" in reply.headers) == (200, False)
    assert f'href="?token={client.reader}&amp;tab=2"' in reply.body.decode(), "the person may say so"
    assert (await client.ask(address, token=None, Sec_Fetch_Site="none")).status == 303
    assert (await client.ask(address, token=None, Sec_Fetch_Site="same-origin")).status == 303


# Open connections


async def test_a_busy_feed_ends_with_its_token(home: Path, monkeypatch: pytest.MonkeyPatch):
    """Frames come all the time, so that there is never a pause to look in."""
    monkeypatch.setattr(streaming, "CHECK_S", 0.05)
    async with serving(home) as client:
        headers = {"Authorization": f"Bearer {client.reader}"}
        async with client.session.get(f"{client.server.url}api/v1/events", headers=headers) as reply:
            with closing(open_store(home)) as store:
                store.tokens.revoke("guest")
            with anyio.fail_after(30):
                while not reply.content.at_eof():
                    await reply.content.readline()


async def test_a_desktop_ends_with_the_token(home: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(desktops, "CHECK_S", 0.05)
    sent, received = anyio.create_memory_object_stream[bytes](10)

    class Screen:
        async def send(self, data: bytes) -> None:
            await sent.send(data)

        def __aiter__(self) -> Any:
            return self

        async def __anext__(self) -> bytes:
            await anyio.sleep_forever()
            raise StopAsyncIteration

    class Away:
        def of_host(self, _found: object) -> Any:
            return self

        async def __aenter__(self) -> Screen:
            return Screen()

        async def __aexit__(self, *_: object) -> None:
            return None

    monkeypatch.setattr(desktops, "Screens", lambda *_: Away())
    monkeypatch.setattr(desktops, "host_named", lambda *_: type("Found", (), {"name": "box"})())
    async with serving(home) as client, sent, received:
        url = f"{client.server.url}api/v1/pools/p/hosts/box/vnc?control=1"
        async with client.session.ws_connect(url, headers={"Authorization": f"Bearer {client.operator}"}) as desktop:
            await desktop.send_bytes(b"key")
            assert await received.receive() == b"key"
            with closing(open_store(home)) as store:
                store.tokens.revoke("boss")
            with anyio.fail_after(30):
                message = await desktop.receive()
            assert (message.type, desktop.close_code) == (aiohttp.WSMsgType.CLOSE, desktops.NOT_ALLOWED)


async def test_one_token_cannot_take_all_feeds(client: Client, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(streaming, "MOST_OF_ONE", 3)
    assert feed.MOST_READERS > feed.MOST_OF_ONE
    url = f"{client.server.url}api/v1/events"
    guest, boss = ({"Authorization": f"Bearer {token}"} for token in (client.reader, client.operator))
    replies = [await client.session.get(url, headers=guest) for _ in range(4)]
    assert [reply.status for reply in replies] == [200, 200, 200, 429]
    mine = await client.session.get(url, headers=boss)
    assert mine.status == 200
    for reply in [*replies, mine]:
        reply.close()


# Floods


async def test_connections_that_only_hold_a_place_are_closed(
    home: Path, caplog: pytest.LogCaptureFixture, monkeypatch: Any
):
    monkeypatch.setattr(server, "raise_file_limit", lambda: 40)
    async with serving(home) as client:
        port = client.server.site.gate.entrance.port
        held: list[socket.socket] = []
        with caplog.at_level(logging.WARNING, "evalfleet.web"):
            for _ in range(300):
                held.append(socket.create_connection(("127.0.0.1", port)))
                await asyncio.sleep(0)
            for _ in range(20):
                assert (await client.ask("/api/v1/me")).status == 200
        assert len([one for one in caplog.messages if "too many connections" in one]) == 1
        for one in held:
            one.close()


async def test_who_has_shown_a_token_keeps_the_connection(home: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(server, "raise_file_limit", lambda: 40)
    async with serving(home) as client:
        headers = {"Authorization": f"Bearer {client.operator}"}
        async with client.session.get(f"{client.server.url}api/v1/events", headers=headers) as reply:
            port = client.server.site.gate.entrance.port
            held = [socket.create_connection(("127.0.0.1", port)) for _ in range(200)]
            await asyncio.sleep(0.1)
            with closing(open_store(home)) as store:
                store.events.note("r1", "test.noted", {})
            with anyio.fail_after(30):
                while b"test.noted" not in await reply.content.readline():
                    pass
            for one in held:
                one.close()


def test_the_limit_of_files_is_raised_and_not_for_what_the_server_starts(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(file_limit, "_given", None)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
        assert raise_file_limit() > 256
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == hard
        with subprocess.Popen(["sleep", "60"]) as child:
            lower_file_limit(child.pid)
            assert resource.prlimit(child.pid, resource.RLIMIT_NOFILE) == (256, hard)
            child.kill()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_proxy_is_many_people():
    class Transport(asyncio.Transport):
        aborted = False

        def get_extra_info(self, name: str, default: Any = None) -> Any:
            return ("10.0.0.1", 1)

        def abort(self) -> None:
            self.aborted = True

    for shared, kept in ((False, 5), (True, 10)):
        connections = ConnectionLimit(10, shared=shared)
        made = [Transport() for _ in range(12)]
        for one in made:
            connections.came(one)
        assert sum(not one.aborted for one in made) == kept


async def test_a_long_request_line_is_quiet(client: Client, caplog: pytest.LogCaptureFixture):
    reader, writer = await asyncio.open_connection("127.0.0.1", client.server.site.gate.entrance.port)
    writer.write(b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n")
    await writer.drain()
    assert b"400" in await reader.readline()
    writer.close()
    assert not [record for record in caplog.records if record.exc_info]


# A controller that does not answer


async def test_a_stopped_controller_holds_up_nothing_else(home: Path):
    with closing(open_store(home)) as store:
        run = cases.drive(store)
        async with serving(home) as client, anyio.create_task_group() as group:
            replies: list[int] = []

            async def pause() -> None:
                replies.append((await client.ask(f"/api/v1/runs/{run.id}/pause", "POST")).status)

            for _ in range(12):
                group.start_soon(pause)
            while len([one for one in store.requests.pending(run.id) if one.verb is Verb.PAUSE]) < 8:  # noqa: ASYNC110
                await anyio.sleep(0.01)
            with anyio.fail_after(5):
                document = {"tasks": [{"key": "a", "command": ["true"]}]}
                assert (await client.ask("/api/v1/runs", "POST", data=document)).status == 201
            assert replies == [409] * 4, "eight wait for it, which is enough"
            for request in store.requests.pending(run.id):
                store.requests.obey(run, request, {"pausing": 0})


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
async def test_tls_is_asked_for_again(home: Path, tmp_path: Path):
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=dash.example"]
    await anyio.run_process([*words, "-keyout", str(key), "-out", str(cert)])
    options = Options(port=0, drive=False, tls_cert=cert, tls_key=key, allow_hosts=("dash.example",))
    async with serving(home, options) as client:
        port = client.server.site.gate.entrance.port
        url = f"https://127.0.0.1:{port}/healthz"
        for host, told in (("dash.example", True), ("127.0.0.1", False), ("localhost", False)):
            async with client.session.get(url, ssl=False, headers={"Host": f"{host}:{port}"}) as reply:
                assert reply.status == 200
                assert ("Strict-Transport-Security" in reply.headers) is told, host
