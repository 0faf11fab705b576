"""The handler of the live feed."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from contextlib import suppress

from aiohttp import HttpVersion11, web

from evalfleet.errors import InputError
from evalfleet.web import params
from evalfleet.web.context import Site, bearer_of
from evalfleet.web.feed import MOST_OF_ONE, MOST_READERS, Behind, Frame, Subscriber, named
from evalfleet.web.security.auth import Denied

HEARTBEAT_S = 10.0
CHECK_S = 5.0  # how often to look whether the token is still valid
_STUCK_S = 20.0  # without taking anything
_LEAST_S = 0.05  # between two looks at one reader
_HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",  # a proxy in front must not gather frames
}


class _Connection:
    """The line of one reader. Implements `Line`: frames are put straight on the wire, past the response that began the stream."""

    def __init__(self, transport: asyncio.Transport, *, chunked: bool) -> None:
        self._transport = transport
        self._chunked = chunked
        self._sent = 0
        self._taken = 0  # of what was sent, when somebody last looked
        self._moved_at = self.sent_at = time.monotonic()

    def send(self, frame: Frame) -> bool:
        if self.gone():
            return False
        data = frame.chunk if self._chunked else frame.plain
        self._sent += len(data)
        self.sent_at = time.monotonic()
        self._transport.write(data)
        return True

    def waiting(self) -> int:
        return self._transport.get_write_buffer_size()

    def cut(self) -> None:
        self._transport.abort()

    def gone(self) -> bool:
        return self._transport.is_closing()

    def stuck(self) -> bool:
        """Whether something waits, and nothing of it was taken for long."""
        now, taken = time.monotonic(), self._sent - self.waiting()
        # What waits is longer than what was sent where it is encrypted, so that less may seem to be taken than before.
        if taken > self._taken or not self.waiting():
            self._taken, self._moved_at = taken, now
        return now - self._moved_at >= _STUCK_S


class Streaming:
    """Handler of the role reader."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._listening: Counter[str] = Counter()  # by token

    async def events(self, request: web.Request) -> web.StreamResponse:
        after = _after(request)
        runs = frozenset(run for run in request.query.getall("run", []) if run)
        feed = self._site.feed
        who = bearer_of(request).id or request.remote or ""
        if self._listening[who] >= MOST_OF_ONE:
            raise Denied(429, f"{MOST_OF_ONE} readers listen with this token already; close some pages", 30.0)
        if feed.readers >= MOST_READERS:
            raise Denied(503, f"{MOST_READERS} readers listen already; close some pages", 30.0)
        response = web.StreamResponse(headers=_HEADERS)
        if request.version >= HttpVersion11:
            response.enable_chunked_encoding()
        await response.prepare(request)
        if not isinstance(request.transport, asyncio.Transport):
            return response  # gone already
        line = _Connection(request.transport, chunked=response.chunked)
        subscriber = feed.join(line, runs, after)
        self._listening[who] += 1
        try:
            # Whoever goes away is no error; whoever does not read for long is taken for gone.
            with suppress(ConnectionResetError):
                await self._begin(response, subscriber, after)
                await self._go_on(request, line, subscriber)
        except TimeoutError:
            subscriber.drop()
        finally:
            feed.leave(subscriber)
            self._listening[who] -= 1
            if not self._listening[who]:
                del self._listening[who]
        return response

    async def _begin(self, response: web.StreamResponse, subscriber: Subscriber, after: int | None) -> None:
        """Tell what was before, until the reader is up to date."""
        hello = named("hello", {"event": subscriber.after, "now": time.time()})
        await _write(response, b"retry: 1000\n\n" + hello)
        if after is not None:
            try:
                async for frame in self._site.feed.replay(subscriber):
                    await _write(response, frame)
            except Behind as behind:
                reason = "too far behind; fetch again"
                told = {"event": behind.number, "reason": reason}
                await _write(response, named("resync", told, behind.number))
        while frame := subscriber.go_live():
            await _write(response, frame)

    async def _go_on(self, request: web.Request, line: _Connection, subscriber: Subscriber) -> None:
        """Watch over a stream that others write, and keep it alive."""
        bearer = bearer_of(request)
        while True:
            with suppress(TimeoutError):
                due_s = line.sent_at + HEARTBEAT_S - time.monotonic()
                async with asyncio.timeout(max(_LEAST_S, min(CHECK_S, due_s))):
                    await subscriber.ended.wait()
            if subscriber.dropped or line.gone():
                return
            if line.stuck():
                subscriber.drop()
            elif time.monotonic() >= line.sent_at + HEARTBEAT_S:
                line.send(Frame(b": %.1f\n\n" % time.time()))
            if not await self._site.gate.still_valid(bearer):
                return


async def _write(response: web.StreamResponse, data: bytes) -> None:
    if data:
        async with asyncio.timeout(_STUCK_S):
            await response.write(data)


def _after(request: web.Request) -> int | None:
    """After which number to begin; the browser's own memory goes before the address."""
    remembered = request.headers.get("Last-Event-ID", "").strip()
    if remembered:
        if not (remembered.isascii() and remembered.isdigit() and len(remembered) < 19):
            raise InputError(f"Last-Event-ID: {remembered[:40]!r} is not the number of an event")
        return int(remembered)
    return params.whole(request, "after", None)
