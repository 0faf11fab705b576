"""The live feed over real connections: nothing missed, nothing twice, slow readers dropped."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import anyio.lowlevel
import pytest
from tests.support.web_client import Client, serving

from evalfleet.store.open import open_store
from evalfleet.web import feed
from evalfleet.web.handlers import feed as streaming


def note(home: Path, count: int, run: str = "r1", size: int = 10) -> int:
    """Write events as another process would; returns the last number."""
    with closing(open_store(home)) as store:
        with store.batch():
            for _ in range(count):
                store.events.note(run, "test.noted", {"text": "x" * size})
        return store.events.last_number()


class Stream:
    """What a browser sees of the feed."""

    def __init__(self, reply: aiohttp.ClientResponse) -> None:
        self.reply = reply
        self.events: list[dict[str, Any]] = []
        self.named: list[tuple[str, dict[str, Any]]] = []
        self.frames = 0

    async def until(self, number: int) -> None:
        """Read until that event was seen."""
        with anyio.fail_after(30):
            while not self.events or self.events[-1]["number"] < number:
                await self.message()

    async def message(self) -> None:
        lines: dict[str, str] = {}
        while line := (await self.reply.content.readline()).decode().rstrip("\n"):
            name, _, value = line.partition(": ")
            lines[name] = value
        if self.reply.content.at_eof() and not lines:
            raise EOFError
        if "data" in lines and "event" in lines:
            self.named.append((lines["event"], json.loads(lines["data"])))
        elif "data" in lines:
            assert lines["id"] == str(json.loads(lines["data"])["number"])
            self.events.append(json.loads(lines["data"]))

    @property
    def numbers(self) -> list[int]:
        return [event["number"] for event in self.events]


@asynccontextmanager
async def stream(client: Client, query: str = "", **headers: str) -> AsyncGenerator[Stream]:
    sent = {"Authorization": f"Bearer {client.operator}", **{k.replace("_", "-"): v for k, v in headers.items()}}
    async with client.session.get(f"{client.server.url}api/v1/events{query}", headers=sent) as reply:
        assert reply.status == 200, await reply.text()
        found = Stream(reply)
        while not found.named:
            await found.message()
        yield found


async def test_a_reader_gets_what_was_and_what_comes(home: Path):
    async with serving(home) as client:
        await anyio.to_thread.run_sync(note, home, 50)
        async with stream(client, "?after=0") as reader:
            last = await anyio.to_thread.run_sync(note, home, 50)
            await reader.until(last)
        assert reader.numbers == list(range(1, last + 1))
        assert reader.named == [("hello", {"event": 0, "now": reader.named[0][1]["now"]})]


async def test_a_reader_without_a_memory_begins_now(home: Path):
    async with serving(home) as client:
        before = await anyio.to_thread.run_sync(note, home, 5)
        async with stream(client, f"?after={before}") as reader:
            await anyio.lowlevel.checkpoint()
        async with stream(client) as reader:
            last = await anyio.to_thread.run_sync(note, home, 3)
            await reader.until(last)
        assert reader.numbers == list(range(reader.named[0][1]["event"] + 1, last + 1))


async def test_what_the_browser_remembers_goes_before_the_address(home: Path):
    async with serving(home) as client:
        last = await anyio.to_thread.run_sync(note, home, 20)
        async with stream(client, "?after=3", Last_Event_ID="15") as reader:
            await reader.until(last)
        assert reader.numbers == list(range(16, last + 1))
        wrong = await client.ask("/api/v1/events", Last_Event_ID="abc")
        assert wrong.status == 400


async def test_readers_that_join_in_the_middle_of_a_storm_miss_nothing(home: Path):
    async with serving(home) as client:
        over = threading.Event()

        def storm() -> None:
            for _ in range(60):
                note(home, 20)
            over.set()

        thread = threading.Thread(target=storm)
        thread.start()

        async def read(after: int, found: list[Stream]) -> None:
            async with stream(client, f"?after={after}") as reader:
                while not over.is_set():
                    await reader.message()
                with closing(open_store(home)) as store:
                    await reader.until(store.events.last_number())
            found.append(reader)

        found: list[Stream] = []
        async with anyio.create_task_group() as group:
            for i in range(8):
                group.start_soon(read, 0, found)
                await anyio.sleep(0.05 * (i % 3))
        thread.join()
        last = max(reader.numbers[-1] for reader in found)
        assert last >= 1200
        for reader in found:
            assert reader.numbers == list(range(1, reader.numbers[-1] + 1))


async def test_one_run_alone(home: Path):
    async with serving(home) as client:
        await anyio.to_thread.run_sync(note, home, 3, "r1")
        async with stream(client, "?after=0&run=r2") as reader:
            await anyio.to_thread.run_sync(note, home, 3, "r1")
            last = await anyio.to_thread.run_sync(note, home, 2, "r2")
            await reader.until(last)
        assert [event["run"] for event in reader.events] == ["r2", "r2"]


@pytest.mark.parametrize("after", [0, 999_999])
async def test_who_is_too_far_behind_begins_anew(home: Path, monkeypatch: pytest.MonkeyPatch, after: int):
    monkeypatch.setattr(feed, "MOST_BEHIND", 10)
    async with serving(home) as client:
        last = await anyio.to_thread.run_sync(note, home, 50)
        while client.server.site.feed.last < last:  # noqa: ASYNC110 - the server's own loop sees it
            await anyio.sleep(0.01)
        async with stream(client, f"?after={after}") as reader:
            last = await anyio.to_thread.run_sync(note, home, 2)
            await reader.until(last)
        name, told = reader.named[1]
        assert name == "resync"
        assert reader.numbers == list(range(told["event"] + 1, last + 1)), "the stream goes on where it says"


def _request(client: Client, port: int, version: str) -> bytes:
    asked = f"GET /api/v1/events?after=0 {version}\r\nHost: 127.0.0.1:{port}\r\n"
    return f"{asked}Authorization: Bearer {client.operator}\r\n\r\n".encode()


async def test_who_does_not_read_is_dropped_and_others_go_on(home: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(feed, "_MOST_BYTES", 1_000_000)
    async with serving(home) as client:
        port = client.server.site.gate.entrance.port
        slow_reader, slow_writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
        slow_writer.write(_request(client, port, "HTTP/1.1"))
        await slow_reader.readuntil(b"hello")
        async with stream(client, "?after=0") as reader:
            assert client.server.site.feed.readers == 2
            last = 0
            for _ in range(30):
                last = await anyio.to_thread.run_sync(note, home, 100, "r1", 5_000)
                await reader.until(last)
            with anyio.fail_after(40):
                while client.server.site.feed.readers > 1:  # noqa: ASYNC110 - until the kernel's buffers are full
                    await anyio.sleep(0.05)
            last = await anyio.to_thread.run_sync(note, home, 5)
            await reader.until(last)
        assert reader.numbers == list(range(1, last + 1))
        slow_writer.transport.abort()


async def test_who_takes_nothing_for_long_is_taken_for_gone(home: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(streaming, "HEARTBEAT_S", 0.05)
    monkeypatch.setattr(streaming, "_STUCK_S", 0.5)
    monkeypatch.setattr(feed, "_MOST_BYTES", 1 << 30)  # not what waits tells it, but how long
    async with serving(home) as client:
        port = client.server.site.gate.entrance.port
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
        writer.write(_request(client, port, "HTTP/1.1"))
        await reader.readuntil(b"hello")
        with anyio.fail_after(40):
            while client.server.site.feed.readers:  # until the kernel's buffers are full, and then half a second
                await anyio.to_thread.run_sync(note, home, 100, "r1", 5_000)
        writer.transport.abort()


async def test_an_old_client_reads_without_chunks(home: Path):
    async with serving(home) as client:
        port = client.server.site.gate.entrance.port
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(_request(client, port, "HTTP/1.0"))
        await reader.readuntil(b"hello")
        last = await anyio.to_thread.run_sync(note, home, 3)
        told = await reader.readuntil(b"id: %d\n" % last)
        lines = [line for line in told.splitlines() if line]
        assert all(line.startswith((b"data: ", b"id: ", b"retry: ", b"event: ", b": ")) for line in lines[1:]), lines
        writer.transport.abort()


def test_a_stuck_reader_is_seen_behind_tls_too(monkeypatch: pytest.MonkeyPatch):
    class Encrypting:
        """A line that takes nothing, and keeps more than it was given."""

        kept = 0

        def write(self, data: bytes) -> None:
            self.kept += len(data) + 22

        def get_write_buffer_size(self) -> int:
            return self.kept

        def is_closing(self) -> bool:
            return False

    now = 100.0
    monkeypatch.setattr(streaming.time, "monotonic", lambda: now)
    line = streaming._Connection(Encrypting(), chunked=True)  # pyright: ignore[reportPrivateUsage, reportArgumentType]
    for _ in range(4):
        assert line.send(feed.Frame(b": still here\n\n"))
        assert not line.stuck()
        now += 5.5
    assert line.send(feed.Frame(b": still here\n\n"))
    assert line.stuck()


async def test_what_happens_before_an_unknown_number_is_refused_is_in_the_resync(home: Path):
    async with serving(home) as client:
        told = client.server.site.feed
        line = Line()
        subscriber = told.join(line, frozenset(), 10**9)
        last = await anyio.to_thread.run_sync(note, home, 5)
        while told.last < last:  # noqa: ASYNC110 - the server's own loop sees it
            await anyio.sleep(0.01)
        with pytest.raises(feed.Behind) as refused:
            await anext(told.replay(subscriber))
        assert refused.value.number == told.last >= last
        assert subscriber.go_live() == b""
        told.leave(subscriber)


class Line:
    """A reader whose line takes all."""

    def send(self, frame: feed.Frame) -> bool:
        return bool(frame.plain)

    def waiting(self) -> int:
        return 0

    def cut(self) -> None: ...


async def test_a_revoked_token_ends_the_stream(home: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(streaming, "HEARTBEAT_S", 0.05)
    async with serving(home) as client, stream(client) as reader:
        with closing(open_store(home)) as store:
            store.tokens.revoke("boss")
        with pytest.raises(EOFError):
            await reader.until(1 << 40)


async def test_an_answer_says_up_to_where_it_is_whole(home: Path):
    async with serving(home) as client:
        last = await anyio.to_thread.run_sync(note, home, 5)
        reply = await client.ask("/api/v1/runs")
        assert int(reply.headers["X-Evalfleet-Event"]) >= last
