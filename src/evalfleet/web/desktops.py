"""The live desktop of an attempt: a WebSocket of ours in front of its VNC socket.

The socket lies in the attempt's own folder and is reached by that folder alone: no task can lead us to another one. Whoever may only
look is heard only as far as looking needs; taking over needs an operator, and is an event.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

import anyio
from aiohttp import WSMsgType, web

from evalfleet.core.rfb import Foreign, ViewOnly
from evalfleet.errors import NotFound
from evalfleet.model import Role
from evalfleet.web import attempts, params
from evalfleet.web.attempts import Place
from evalfleet.web.gate import Denied
from evalfleet.web.site import Site, bearer_of

GONE, NOT_ALLOWED = 4001, 4003
_BLOCK = 1 << 16
_HEARTBEAT_S = 20.0


class Desktops:
    """Handler of the role reader; `control=1` needs an operator."""

    def __init__(self, site: Site) -> None:
        self._site = site

    async def vnc(self, request: web.Request) -> web.StreamResponse:
        bearer = bearer_of(request)
        control = params.word(request, "control", ("0", "1")) == "1"
        if control and bearer.role is not Role.OPERATOR:
            raise Denied(403, "this token may only look; an operator's is needed to take over a desktop")
        text, task, number = (
            request.match_info["run"],
            params.number(request, "task"),
            params.number(request, "attempt"),
        )
        home = self._site.home
        found = await self._site.readers.call(lambda store: attempts.place(store, home, text, task, number))
        async with _connected(found) as (reader, writer):
            socket = web.WebSocketResponse(protocols=["binary"], heartbeat=_HEARTBEAT_S, max_msg_size=1 << 22)
            await socket.prepare(request)
            if control:
                data = {"verb": "take_over", "by": str(bearer), "attempt": found.attempt.id}
                await self._site.write(lambda store: store.note(found.run.id, "run.requested", data, found.task.key))
            async with anyio.create_task_group() as group:
                group.start_soon(_show, reader, socket, group.cancel_scope)
                await _hear(socket, writer, None if control else ViewOnly())
                group.cancel_scope.cancel()
        return socket


async def _show(reader: asyncio.StreamReader, socket: web.WebSocketResponse, scope: anyio.CancelScope) -> None:
    """What the desktop sends goes to the browser."""
    with suppress(ConnectionError):
        while data := await reader.read(_BLOCK):
            await socket.send_bytes(data)
    await socket.close(code=GONE, message=b"the desktop is gone")
    scope.cancel()


async def _hear(socket: web.WebSocketResponse, writer: asyncio.StreamWriter, filtered: ViewOnly | None) -> None:
    """What the browser sends goes to the desktop, as far as it may."""
    with suppress(ConnectionError):
        async for message in socket:
            if message.type is not WSMsgType.BINARY:
                continue
            try:
                data = message.data if filtered is None else filtered.feed(message.data)
            except Foreign as error:
                await socket.close(code=NOT_ALLOWED, message=str(error).encode()[:100])
                return
            writer.write(data)
            await writer.drain()


@asynccontextmanager
async def _connected(found: Place) -> AsyncGenerator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Raises NotFound."""
    path = attempts.vnc_socket(found) if found.is_live else None
    if path is None:
        raise NotFound(f"attempt {found.attempt.id} has no desktop that can be watched now")
    # Paths of sockets end at 108 bytes; through the folder's descriptor every path is short.
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        reader, writer = await asyncio.open_unix_connection(f"/proc/self/fd/{folder}/{path.name}")
    except OSError as error:
        raise NotFound(f"the desktop of attempt {found.attempt.id} does not answer: {error.strerror}") from None
    finally:
        os.close(folder)
    try:
        yield reader, writer
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
