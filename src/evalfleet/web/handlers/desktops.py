"""Live desktops: a WebSocket in front of an attempt's VNC socket, or of the screen that a host of a pool shows.

On this machine the socket lies in the attempt's own folder and is reached by that folder alone: no task can lead us to another one. On
another machine it is reached the same way, over SSH. Input of a viewer is dropped, except what viewing needs; taking over needs
an operator, and is an event.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import anyio
from aiohttp import WSMsgType, web
from anyio.abc import ByteStream

from evalfleet.errors import NotFound
from evalfleet.web import params
from evalfleet.web.context import Site, bearer_of, place_of
from evalfleet.web.handlers import attempts
from evalfleet.web.handlers.attempts import Place
from evalfleet.web.handlers.screens import Screens, host_named
from evalfleet.web.security.tokens import Bearer
from evalfleet.wire.rfb import Foreign, ViewOnly

GONE, NOT_ALLOWED = 4001, 4003
_BLOCK = 1 << 16
_HEARTBEAT_S = 20.0
CHECK_S = 5.0  # how often to look whether the token is still valid
_CLOSE_S = 2.0
_BROKEN = (anyio.BrokenResourceError, anyio.ClosedResourceError, ConnectionError)


class Desktops:
    """Handlers of the role reader; what `control=1` needs is in the table of routes."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._screens = Screens(site.remote, site.settings)

    async def vnc(self, request: web.Request) -> web.StreamResponse:
        """The desktop of an attempt."""
        control = _control(request)
        found = await place_of(self._site, request)
        async with self._screens.of_attempt(found) if found.away is not None else _here(found) as stream:
            socket = await _accepted(request)
            if control:
                data = {"verb": "take_over", "by": str(bearer_of(request)), "attempt": found.attempt.id}
                await self._site.write(
                    lambda store: store.events.note(found.run.id, "run.requested", data, found.task.key)
                )
            await self._joined(socket, stream, None if control else ViewOnly(), bearer_of(request))
        return socket

    async def host_vnc(self, request: web.Request) -> web.StreamResponse:
        """The screen of a pool's host."""
        control = _control(request)
        pool, host = request.match_info["pool"], request.match_info["host"]
        found = await self._site.readers.call(lambda store: host_named(store, pool, host))
        async with self._screens.of_host(found) as stream:
            socket = await _accepted(request)
            if control:
                data = {"verb": "take_over", "by": str(bearer_of(request)), "host": found.name}
                await self._site.write(lambda store: store.events.note(f"pool:{pool}", "pool.requested", data))
            await self._joined(socket, stream, None if control else ViewOnly(), bearer_of(request))
        return socket

    async def _joined(
        self, socket: web.WebSocketResponse, stream: ByteStream, filtered: ViewOnly | None, bearer: Bearer
    ) -> None:
        """Forward both ways until one side closes or the token expires."""
        async with anyio.create_task_group() as group:
            group.start_soon(_show, stream, socket, group.cancel_scope)
            group.start_soon(self._keep_checking, socket, bearer, group.cancel_scope)
            await _hear(socket, stream, filtered)
            group.cancel_scope.cancel()

    async def _keep_checking(self, socket: web.WebSocketResponse, bearer: Bearer, scope: anyio.CancelScope) -> None:
        while await self._site.gate.still_valid(bearer):  # noqa: ASYNC110 - another process revokes it
            await anyio.sleep(CHECK_S)
        with anyio.move_on_after(_CLOSE_S):  # whoever does not answer is not waited for
            await socket.close(code=NOT_ALLOWED, message=b"the token was revoked, or has expired")
        scope.cancel()

    async def host_screenshot(self, request: web.Request) -> web.StreamResponse:
        """What a host's screen shows now, as `pool screenshot` saves it."""
        pool, host = request.match_info["pool"], request.match_info["host"]
        found = await self._site.readers.call(lambda store: host_named(store, pool, host))
        data = await self._screens.picture(found)
        headers = {"Cache-Control": "no-cache", "Content-Security-Policy": "sandbox; default-src 'none'"}
        return web.Response(body=data, content_type="image/png", headers=headers)


def _control(request: web.Request) -> bool:
    """Whether the controls are wanted."""
    return params.word(request, "control", ("0", "1")) == "1"


async def _accepted(request: web.Request) -> web.WebSocketResponse:
    socket = web.WebSocketResponse(protocols=["binary"], heartbeat=_HEARTBEAT_S, max_msg_size=1 << 22)
    await socket.prepare(request)
    return socket


async def _show(stream: ByteStream, socket: web.WebSocketResponse, scope: anyio.CancelScope) -> None:
    """What the desktop sends goes to the browser."""
    with suppress(*_BROKEN):
        async for data in stream:
            await socket.send_bytes(data)
    await socket.close(code=GONE, message=b"the desktop is gone")
    scope.cancel()


async def _hear(socket: web.WebSocketResponse, stream: ByteStream, filtered: ViewOnly | None) -> None:
    """What the browser sends goes to the desktop, as far as it may."""
    with suppress(*_BROKEN):
        async for message in socket:
            if message.type is not WSMsgType.BINARY:
                continue
            try:
                data = message.data if filtered is None else filtered.feed(message.data)
            except Foreign as error:
                await socket.close(code=NOT_ALLOWED, message=str(error).encode()[:100])
                return
            if data:
                await stream.send(data)


@asynccontextmanager
async def _here(found: Place) -> AsyncGenerator[ByteStream]:
    """The desktop of an attempt on this machine. Raises NotFound."""
    opened = attempts.vnc_socket(found) if found.is_live else None
    if opened is None:
        raise NotFound(f"attempt {found.attempt.id} has no desktop that can be watched now")
    async with AsyncExitStack() as stack:
        try:
            # The very socket that was looked at. And paths of sockets end at 108 bytes, which this one never has.
            stream = await anyio.connect_unix(f"/proc/self/fd/{opened}")
        except OSError as error:
            raise NotFound(f"the desktop of attempt {found.attempt.id} does not answer: {error.strerror}") from None
        finally:
            os.close(opened)
        yield await stack.enter_async_context(stream)
