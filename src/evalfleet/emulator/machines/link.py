"""The network in front of a host: every byte passes here, so that it can be cut or slowed down."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

CHUNK = 65536


class Link:
    """A listener whose connections are pumped to `serve`, which gets one end of a socket pair."""

    def __init__(self, serve: Callable[[socket.socket], Coroutine[Any, Any, None]]) -> None:
        self._serve = serve
        self._server: asyncio.Server | None = None
        self._open = asyncio.Event()
        self._open.set()
        self._latency_s = 0.0
        self._connections: set[asyncio.Task[None]] = set()
        self._mute = False

    async def listen(self, address: str, port: int, *, mute: bool = False) -> None:
        """Accept connections; a mute link never passes anything on."""
        self._mute = mute
        self._server = await asyncio.start_server(self._accepted, address, port, reuse_address=True)

    async def close(self) -> None:
        """Refuse new connections, and cut those that are there."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for task in list(self._connections):
            task.cancel()
        if self._connections:
            await asyncio.wait(self._connections)

    def set(self, *, blocked: bool, latency_s: float) -> None:
        self._latency_s = latency_s
        (self._open.clear if blocked else self._open.set)()

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            if self._mute:
                await asyncio.Event().wait()
            await self._join(reader, writer)
        except (OSError, asyncio.CancelledError):
            pass  # cut by either side; the other one sees it
        finally:
            self._connections.discard(task)
            writer.transport.abort()

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        outer, inner = socket.socketpair()
        for each in (outer, inner):
            each.setblocking(False)
        in_reader, in_writer = await asyncio.open_connection(sock=outer)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._serve(inner))
                tasks.create_task(self._pump(reader, in_writer))
                tasks.create_task(self._pump(in_reader, writer))
        except* OSError:
            pass
        finally:
            in_writer.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass bytes on in order, each as late as the link is slow, and none while it is cut."""
        queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(maxsize=256)
        loop = asyncio.get_running_loop()

        async def send() -> None:
            while True:
                due, data = await queue.get()
                await asyncio.sleep(max(0.0, due - loop.time()))
                await self._open.wait()
                if not data:
                    break
                writer.write(data)
                await writer.drain()
            with suppress(OSError):
                writer.write_eof()

        async with asyncio.TaskGroup() as tasks:
            sender = tasks.create_task(send())
            data = b"-"
            while data and not sender.done():
                data = await reader.read(CHUNK)
                await queue.put((loop.time() + self._latency_s, data))
