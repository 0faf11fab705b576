"""The controller's link and launcher, against a real runner."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from anyio.abc import ByteStream
from anyio.streams.stapled import StapledByteStream
from tests.support.runner import RunnerSpool, a_spec

from evalfleet.errors import RunnerRefused, RunnerUnavailable
from evalfleet.hosts.local.launcher import runner_info, start_runner
from evalfleet.hosts.protocol.link import CommandRefused, RunnerLink, raise_refusal
from evalfleet.model import EndRecord, JsonObject

pytestmark = pytest.mark.anyio


class Heard:
    """Gathers events and lets one wait for them."""

    def __init__(self) -> None:
        self.batches: list[list[JsonObject]] = []
        self._news = anyio.Event()

    def __call__(self, events: list[JsonObject]) -> None:
        self.batches.append(events)
        self._news.set()
        self._news = anyio.Event()

    def ended(self) -> dict[str, JsonObject]:
        return {event["attempt"]: event for batch in self.batches for event in batch if event["type"] == "ended"}

    async def until_ended(self, count: int) -> dict[str, JsonObject]:
        with anyio.fail_after(60):
            while len(self.ended()) < count:
                await self._news.wait()
        return self.ended()


@pytest.fixture
def spool(tmp_path: Path):
    runner = RunnerSpool(tmp_path / "spool")
    yield runner
    runner.close()


@asynccontextmanager
async def linked(spool: RunnerSpool, heard: Heard) -> AsyncGenerator[RunnerLink]:
    info = await start_runner(spool.folder, sys.executable, 600.0)
    async with RunnerLink.connect(await anyio.connect_unix(info.socket), heard) as link:
        yield link


def launch(attempt: str, *command: str) -> JsonObject:
    return {
        "do": "launch",
        "run": "r",
        "epoch": 1,
        "attempt": attempt,
        "valid_for_s": 60,
        "spec": a_spec(*command),
        "secrets": {},
    }


async def test_request_and_refusal(spool: RunnerSpool) -> None:
    async with linked(spool, Heard()) as link:
        assert (await link.request("ping"))["now"] > 0
        with pytest.raises(CommandRefused) as caught:
            await link.request("fetch", attempt="nobody", path="x", offset=0, limit=1)
        assert caught.value.code == "unknown_attempt"
        assert isinstance(caught.value, RunnerRefused)
        assert link.broken is None


async def test_send_many_answers_in_order(spool: RunnerSpool) -> None:
    heard = Heard()
    async with linked(spool, heard) as link:
        messages = [launch(f"a{number}", "/bin/sh", "-c", f"exit {number}") for number in range(20)]
        messages.insert(7, {"do": "dance"})
        answers = await link.send_many(messages)
        assert [answer["ok"] for answer in answers] == [place != 7 for place in range(21)]
        with pytest.raises(CommandRefused):
            raise_refusal(answers[7])
        ends = await heard.until_ended(20)
        assert {name: end["exit_code"] for name, end in ends.items()} == {f"a{number}": number for number in range(20)}
        assert await link.send_many([]) == []


async def test_the_end_record_is_the_models(spool: RunnerSpool) -> None:
    heard = Heard()
    async with linked(spool, heard) as link:
        await link.send_many([launch("a", "true")])
        end = (await heard.until_ended(1))["a"]
    names = set(EndRecord.__struct_fields__)
    assert names == set(end) - {"attempt", "event", "at", "type"}


async def test_concurrent_requests(spool: RunnerSpool) -> None:
    async with linked(spool, Heard()) as link:
        answers: list[JsonObject] = []

        async def ask() -> None:
            answers.append(await link.request("ping"))

        async with anyio.create_task_group() as group:
            for _ in range(50):
                group.start_soon(ask)
        assert len({answer["id"] for answer in answers}) == 50


async def test_a_pending_request_does_not_hang(spool: RunnerSpool) -> None:
    """The runner dies between a request and its answer."""
    ours, theirs = anyio.create_memory_object_stream[bytes](10), anyio.create_memory_object_stream[bytes](10)
    stream = StapledByteStream(_Bytes(ours[0]), _Bytes(theirs[1]))
    async with RunnerLink.connect(stream, Heard()) as link:
        async with anyio.create_task_group() as group:

            async def ask() -> None:
                with pytest.raises(RunnerUnavailable, match="closed the connection"):
                    await link.request("ping")

            group.start_soon(ask)
            with anyio.fail_after(30):
                await ours[1].receive()
                await theirs[0].aclose()
        with pytest.raises(RunnerUnavailable):
            await link.request("ping")
        assert link.broken
    for end in (*ours, *theirs):
        end.close()


class _Bytes(ByteStream):
    """A memory stream of byte strings as a byte stream."""

    def __init__(self, stream) -> None:
        self._stream = stream

    async def send(self, item: bytes) -> None:
        await self._stream.send(item)

    async def receive(self, max_bytes: int = 65536) -> bytes:
        return await self._stream.receive()

    async def send_eof(self) -> None: ...

    async def aclose(self) -> None:
        await self._stream.aclose()


async def test_messages_in_any_pieces() -> None:
    heard = Heard()
    pieces, source = anyio.create_memory_object_stream[bytes](100)
    sink, sent = anyio.create_memory_object_stream[bytes](100)
    async with RunnerLink.connect(StapledByteStream(_Bytes(sink), _Bytes(source)), heard) as link:
        line = b'{"attempt":"a","event":0,"at":1.5,"type":"ended"}\n'
        text = line * 3 + b'{"id":1,"ok":true}\n' + line

        async def answer() -> None:
            await sent.receive()
            for place in range(0, len(text), 7):
                await pieces.send(text[place : place + 7])

        with anyio.fail_after(30):
            async with anyio.create_task_group() as group:
                group.start_soon(answer)
                assert (await link.request("ping"))["ok"] is True
            while sum(map(len, heard.batches)) < 4:
                await anyio.lowlevel.checkpoint()
    for end in (pieces, source, sink, sent):
        end.close()


async def test_garbage_breaks_the_link() -> None:
    pieces, source = anyio.create_memory_object_stream[bytes](100)
    sink, sent = anyio.create_memory_object_stream[bytes](100)
    async with RunnerLink.connect(StapledByteStream(_Bytes(sink), _Bytes(source)), Heard()) as link:
        await pieces.send(b"Welcome to Linux!\n")
        with pytest.raises(RunnerUnavailable, match="invalid message"), anyio.fail_after(30):
            await link.request("ping")
    for end in (pieces, source, sink, sent):
        end.close()


async def test_start_runner_finds_the_running_one(spool: RunnerSpool) -> None:
    assert runner_info(spool.folder) is None
    first = await start_runner(spool.folder, sys.executable, 600.0)
    assert await start_runner(spool.folder, sys.executable, 600.0) == first == runner_info(spool.folder)
    spool.kill()
    assert runner_info(spool.folder) is None
    assert (await start_runner(spool.folder, sys.executable, 600.0)).pid != first.pid


async def test_a_new_runner_after_a_shutdown(spool: RunnerSpool) -> None:
    """As soon as the connection closes, the next start gets a new runner and never the dying one."""
    pids = set[int]()
    for _ in range(5):
        info = await start_runner(spool.folder, sys.executable, 600.0)
        pids.add(info.pid)
        link = RunnerLink(await anyio.connect_unix(info.socket), Heard())
        async with anyio.create_task_group() as group:
            group.start_soon(link.serve)
            assert (await link.request("shutdown"))["ended"] is True
        await link.aclose()
    assert len(pids) == 5


async def test_start_runner_names_the_cause(tmp_path: Path) -> None:
    with pytest.raises(RunnerUnavailable, match="no-such-python: No such file"):
        await start_runner(tmp_path / "a", "no-such-python", 1.0)
    with pytest.raises(RunnerUnavailable, match="exit status 1"):
        await start_runner(tmp_path / "a", "/bin/false", 1.0)
    deaf = tmp_path / "deaf"
    deaf.write_text("#!/bin/sh\nexec sleep 60\n")
    deaf.chmod(0o755)
    with pytest.raises(RunnerUnavailable, match=r"within 0\.2 s"):
        await start_runner(tmp_path / "a", str(deaf), 1.0, timeout_s=0.2)
    (tmp_path / "file").touch()
    with pytest.raises(RunnerUnavailable, match="cannot write"):
        await start_runner(tmp_path / "file" / "spool", sys.executable, 1.0)


class Said(ByteStream):
    """A host that says what it was told to say, in pieces, and then waits."""

    def __init__(self, data: bytes, first: int = 1 << 20) -> None:
        """
        Args:
            first: how many bytes the first piece has at most.
        """
        self._data = data
        self._most = first

    async def receive(self, max_bytes: int = 65536) -> bytes:
        if not self._data:
            await anyio.sleep_forever()
        size, self._most = min(max_bytes, self._most), max_bytes
        piece, self._data = self._data[:size], self._data[size:]
        return piece

    async def send(self, item: bytes) -> None: ...
    async def send_eof(self) -> None: ...
    async def aclose(self) -> None: ...


def event(attempt: str, number: int, kind: str, more: str = "") -> bytes:
    return f'{{"attempt":"{attempt}","event":{number},"at":1.5,"type":"{kind}"{more}}}\n'.encode()


async def test_an_end_that_is_too_long_costs_its_attempt_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the connection breaks at that line for ever, and the attempt never ends."""
    monkeypatch.setattr("evalfleet.hosts.protocol.link.MAX_LINE", 1 << 20)
    long = f',"artifacts":["{"x" * (3 << 20)}"]'
    said = b"".join(
        [
            event("r.1.1", 0, "launched"),
            event("r.1.1", 1, "progress", long),
            event("r.1.1", 2, "ended", long),
            event("r.2.1", 0, "ended", ',"cause":"exited","exit_code":0'),
        ]
    )
    heard = Heard()
    async with RunnerLink.connect(Said(said), heard) as link:
        ends = await heard.until_ended(2)
        assert link.broken is None
    assert (ends["r.1.1"]["cause"], ends["r.1.1"]["event"]) == ("backend_error", 2)
    assert "longer than 1048576 bytes" in ends["r.1.1"]["message"]
    assert ends["r.2.1"]["cause"] == "exited"
    assert [one["type"] for batch in heard.batches for one in batch] == ["launched", "ended", "ended"]


async def test_an_end_that_is_too_long_may_begin_with_the_last_bytes_of_a_piece(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("evalfleet.hosts.protocol.link.MAX_LINE", 1 << 20)
    before = event("r.1.1", 0, "launched")
    said = Said(before + event("r.1.1", 1, "ended", f',"tail":"{"x" * (3 << 20)}"'), first=len(before) + 3)
    heard = Heard()
    async with RunnerLink.connect(said, heard) as link:
        with anyio.fail_after(30):
            ends = await heard.until_ended(1)
        assert link.broken is None
    assert ends["r.1.1"]["cause"] == "backend_error"


async def test_an_endless_line_that_is_no_event_breaks_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evalfleet.hosts.protocol.link.MAX_LINE", 1 << 20)
    async with RunnerLink.connect(Said(b'{"id":7,"data":"' + b"x" * (3 << 20)), Heard()) as link:
        with anyio.fail_after(30):
            await link.gone.wait()
    assert "a line that is too long" in str(link.broken)
