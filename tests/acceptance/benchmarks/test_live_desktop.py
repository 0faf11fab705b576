"""The bridge to a live desktop: a real attempt with a VNC socket in its folder, real WebSockets, a reader and an operator."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any, cast

import aiohttp
import pytest
from tests.support.fleet import Fleet, wait_for
from tests.support.web_server import Served, serve

# Speaks as much RFB as a viewer needs to begin, and writes down what it hears.
DESKTOP = """
import os, pathlib, socket
folder = pathlib.Path(os.environ["EVALFLEET_RESULT"]).parent
os.chdir(folder)
server = socket.socket(socket.AF_UNIX)
server.bind("vnc.sock")
server.listen()
while True:
    viewer, _ = server.accept()
    viewer.sendall(b"RFB 003.008\\n")
    heard = b""
    while data := viewer.recv(4096):
        heard += data
        pathlib.Path(os.environ["HEARD"]).write_bytes(heard)
        viewer.sendall(b"seen %d;" % len(heard))
"""
HELLO = b"RFB 003.008\n\x01\x00"
KEY = bytes([4, 1, 0, 0, 0, 0, 0, 0x61])
UPDATE = bytes([3, 1]) + b"\0" * 8

LIMIT = cast("Any", aiohttp.ClientWSTimeout)(ws_receive=20)  # made by a library that the checker cannot see through


@pytest.fixture
def server(fleet: Fleet) -> Served:
    (fleet.folder / "desktop.py").write_text(DESKTOP)
    served = serve(fleet)
    task = {"key": "a", "command": [sys.executable, "desktop.py"], "env": {"HEARD": str(fleet.folder / "heard")}}
    fleet.command("run", fleet.tasks([task]), "--detach")
    wait_for(lambda: watchable(served), "the desktop to be there")
    return served


def watchable(server: Served) -> bool:
    answer = server.ask("/api/v1/runs/latest/tasks/1/attempts/1")
    return answer.status == 200 and answer.json["desktop"]["vnc"]


def address(server: Served, query: str = "") -> str:
    return f"ws://127.0.0.1:{server.port}/api/v1/runs/latest/tasks/1/attempts/1/vnc{query}"


async def spoken(url: str, token: str, words: list[bytes], **headers: str) -> tuple[bytes, int | None]:
    """Say something and hear the answers; returns them and the code of the close, where there was one."""
    sent: dict[str, Any] = {"Authorization": f"Bearer {token}", **headers}
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(url, headers=sent, protocols=["binary"], timeout=LIMIT) as ws,
    ):
        heard = await ws.receive_bytes(timeout=20)
        for word in words:
            await ws.send_bytes(word)
        try:
            async with asyncio.timeout(2):
                async for message in ws:
                    heard += message.data
        except TimeoutError:
            pass
        return heard, ws.close_code


def heard(fleet: Fleet) -> bytes:
    path = Path(fleet.folder / "heard")
    return path.read_bytes() if path.exists() else b""


def test_a_reader_looks_and_cannot_type(fleet: Fleet, server: Served):
    reader = fleet.json("token", "new", "guest")["token"]
    said, _ = asyncio.run(spoken(address(server), reader, [HELLO, KEY, UPDATE, KEY]))
    assert said.startswith(b"RFB 003.008\n")
    assert b"seen" in said
    wait_for(lambda: heard(fleet) == HELLO[:-1] + b"\x01" + UPDATE, "the questions, and no key")
    with pytest.raises(aiohttp.WSServerHandshakeError, match="403"):
        asyncio.run(spoken(address(server, "?control=1"), reader, []))


def test_an_operator_takes_over_and_that_is_an_event(fleet: Fleet, server: Served):
    asyncio.run(spoken(address(server, "?control=1"), server.token, [HELLO, KEY]))
    wait_for(lambda: heard(fleet) == HELLO + KEY, "the key")
    asked = [event["data"]["verb"] for event in fleet.events() if event["type"] == "run.requested"]
    assert asked == ["take_over"]
    asyncio.run(spoken(address(server), server.token, [HELLO, KEY]))
    wait_for(lambda: heard(fleet) == HELLO[:-1] + b"\x01", "an operator who did not take over and only looks")


def test_strangers_and_other_pages_are_refused(fleet: Fleet, server: Served):
    for token, headers in (("ef_wrong", {}), (server.token, {"Origin": "http://evil.example"})):
        with pytest.raises(aiohttp.WSServerHandshakeError):
            asyncio.run(spoken(address(server, "?control=1"), token, [], **headers))
    _, code = asyncio.run(spoken(address(server), server.token, [HELLO, b"\x99"]))
    assert code == 4003
    wait_for(lambda: heard(fleet) == HELLO[:-1] + b"\x01", "what was said before that")


def test_a_link_in_the_place_of_the_socket_is_not_followed(fleet: Fleet, server: Served):
    (socket,) = fleet.home.rglob("vnc.sock")
    socket.unlink()
    socket.symlink_to(next((fleet.home / "spool").rglob("*.sock"), fleet.home / "evalfleet.db"))
    assert not watchable(server)
    assert server.ask("/api/v1/runs/latest/tasks/1/attempts/1/vnc").status == 404
