"""A host that talks nonsense costs its own connection, not the controller."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from anyio.abc import SocketStream

from evalfleet.errors import RunnerUnavailable
from evalfleet.hosts.base import HostInfo, Inbox, Launch
from evalfleet.hosts.protocol.link import RunnerLink
from evalfleet.hosts.protocol.runner_host import RunnerHost, into
from evalfleet.model import JsonObject

pytestmark = pytest.mark.anyio

HELLO: JsonObject = {"ok": True, "version": "v", "attempts": [], "now": time.time()}
EVENT: JsonObject = {"attempt": "r.1.1", "event": 1, "at": 1.0, "type": "progress", "step": 1, "lines": []}


class Rogue:
    """The other end of a link: answers what a test wants it to."""

    def __init__(self, stream: SocketStream) -> None:
        self._stream = stream
        self._data = b""
        self.asked: list[JsonObject] = []

    async def answer(self, **fields: Any) -> None:
        while b"\n" not in self._data:
            self._data += await self._stream.receive()
        line, _, self._data = self._data.partition(b"\n")
        self.asked.append(json.loads(line))
        await self.say({"id": self.asked[-1]["id"], **fields})

    async def say(self, message: object) -> None:
        await self._stream.send(json.dumps(message).encode() + b"\n")


@asynccontextmanager
async def a_host(inbox: Inbox) -> AsyncGenerator[tuple[RunnerHost, RunnerLink, Rogue]]:
    near, far = socket.socketpair()
    rogue = Rogue(await SocketStream.from_socket(far))
    async with RunnerLink.connect(await SocketStream.from_socket(near), into(inbox)) as link:
        info = HostInfo(name="h", memory_mb=None, gpus=0, price_usd_per_hour=0.0)
        yield RunnerHost(link, inbox, info, "r", 1, python=None), link, rogue
    await rogue._stream.aclose()


@pytest.mark.parametrize(
    "wrong",
    [
        {"now": "soon"},
        {"now": None},
        {"id": [1]},
        {"id": "1"},
        {"attempts": 7},
        {"attempts": [{"run": "r"}]},
        {"attempts": [{"run": "r", "attempt": 1, "state": "running"}]},
        {"gpus": [3]},
        {"gpus": [{"index": 1, "uuid": "u", "foreign": 7}]},
        {"gpus": [], "gpus_age_s": "old"},
    ],
)
async def test_an_answer_that_is_none_breaks_the_connection(wrong: JsonObject) -> None:
    async with a_host(Inbox()) as (host, link, rogue), anyio.create_task_group() as group:
        group.start_soon(lambda: rogue.answer(**{**HELLO, **wrong}))
        with anyio.fail_after(30), pytest.raises(RunnerUnavailable, match="invalid message"):
            await host.known()
        assert link.broken
        assert host.is_lost


@pytest.mark.parametrize(
    "wrong",
    [
        {"attempt": None},
        {"attempt": 7},
        {"event": "1"},
        {"event": True},
        {"event": -1},
        {"event": 1 << 80},
        {"at": "now"},
        {"type": None},
        {"step": "first"},
        {"cost_usd": [1]},
        {"lines": 5},
        {"type": "ended", "artifacts": "all"},
    ],
)
async def test_an_event_that_is_none_breaks_the_connection(wrong: JsonObject) -> None:
    inbox = Inbox()
    async with a_host(inbox) as (host, link, rogue):
        await rogue.say(EVENT)
        await rogue.say({**EVENT, **wrong})
        with anyio.fail_after(30):
            await host.lost()
        assert "invalid message" in (link.broken or "")
        assert all(seen.attempt_id == "r.1.1" for seen in inbox.take())


async def test_a_notice_that_is_none_breaks_the_connection() -> None:
    async with a_host(Inbox()) as (host, link, rogue):
        await rogue.say({"notice": "slots", "free": "many"})
        with anyio.fail_after(30):
            await host.lost()
        assert "invalid message" in (link.broken or "")


async def test_what_is_unknown_does_not_matter() -> None:
    inbox = Inbox()
    async with a_host(inbox) as (host, _, rogue), anyio.create_task_group() as group:
        await rogue.say({**EVENT, "mood": ["good"]})
        group.start_soon(lambda: rogue.answer(**{**HELLO, "weather": 7}))
        assert await host.known() == []
        assert [seen.number for seen in inbox.take()] == [1]


async def test_a_launch_says_until_when_by_the_clock_of_its_host() -> None:
    """Its clock is an hour ahead of ours; what we learned of it is exact enough."""
    async with a_host(Inbox()) as (host, _, rogue), anyio.create_task_group() as group:
        group.start_soon(lambda: rogue.answer(**{**HELLO, "now": time.time() + 3600}))
        await host.known()
        group.start_soon(lambda: rogue.answer(ok=True))
        await host.launch([Launch(attempt_id="r.1.1", spec={"command": ["true"]}, secrets={}, valid_for_s=60.0)])
        assert abs(rogue.asked[1]["not_after"] - (time.time() + 3660)) < 10
