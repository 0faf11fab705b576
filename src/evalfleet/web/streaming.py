"""The handler of the live feed."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

from aiohttp import web

from evalfleet.errors import InputError
from evalfleet.web import params
from evalfleet.web.feed import MOST_READERS, Behind, Subscriber, named
from evalfleet.web.gate import Denied
from evalfleet.web.site import Site, bearer_of

HEARTBEAT_S = 10.0
_STUCK_S = 20.0  # for one frame
_HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",  # a proxy in front must not gather frames
}


class Streaming:
    """Handler of the role reader."""

    def __init__(self, site: Site) -> None:
        self._site = site

    async def events(self, request: web.Request) -> web.StreamResponse:
        after = _after(request)
        runs = frozenset(run for run in request.query.getall("run", []) if run)
        feed = self._site.feed
        if feed.readers >= MOST_READERS:
            raise Denied(503, f"{MOST_READERS} readers listen already; close some pages", 30.0)
        response = web.StreamResponse(headers=_HEADERS)
        await response.prepare(request)
        subscriber = feed.join(runs, after)
        if request.transport is not None:
            subscriber.abort = request.transport.abort
        try:
            # Whoever goes away is no error; whoever does not read for long is taken for gone.
            with suppress(ConnectionResetError):
                await self._begin(response, subscriber, after)
                await self._go_on(request, response, subscriber)
        except TimeoutError:
            subscriber.drop()
        finally:
            feed.leave(subscriber)
        return response

    async def _begin(self, response: web.StreamResponse, subscriber: Subscriber, after: int | None) -> None:
        hello = named("hello", {"event": subscriber.after, "now": time.time()})
        await _write(response, b"retry: 1000\n\n" + hello)
        if after is None:
            return
        try:
            async for frame in self._site.feed.replay(subscriber):
                await _write(response, frame)
        except Behind as behind:
            reason = "too far behind; fetch again"
            told = {"event": behind.number, "reason": reason}
            await _write(response, named("resync", told, behind.number))

    async def _go_on(self, request: web.Request, response: web.StreamResponse, subscriber: Subscriber) -> None:
        bearer = bearer_of(request)
        checked_at = time.monotonic()
        while not subscriber.dropped:
            frame = await subscriber.next(HEARTBEAT_S)
            if not subscriber.dropped:
                await _write(response, frame or b": %.1f\n\n" % time.time())
            if time.monotonic() - checked_at >= HEARTBEAT_S:
                checked_at = time.monotonic()
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
