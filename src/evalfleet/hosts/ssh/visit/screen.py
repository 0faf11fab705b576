"""Connects to the screen on a port of a host, as a stream of RFB.

Some containers serve a page there (noVNC) with the screen in a WebSocket; other programs speak RFB directly. The first bytes from
the port show which it is, so no timeout is needed.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, cast

import anyio
import asyncssh
from anyio.abc import ByteStream

from evalfleet.errors import HostUnreachable, NotFound
from evalfleet.hosts.ssh.connection import words_of
from evalfleet.wire import websocket

PATH = "/websockify"
_RFB = b"RFB "
_ANSWER_S = 10.0
_LONGEST_HEAD = 1 << 14
_BLOCK = 1 << 16


class PortStream(ByteStream):
    """A connection to a port of the host. Bytes that were already read come first."""

    def __init__(
        self, reader: asyncssh.SSHReader[bytes], writer: asyncssh.SSHWriter[bytes], first: bytes = b""
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._first = first

    async def receive(self, max_bytes: int = _BLOCK) -> bytes:
        data, self._first = self._first, b""
        try:
            data = data or await self._reader.read(max_bytes)
        except (asyncssh.Error, OSError) as error:
            raise anyio.BrokenResourceError from error
        if not data:
            raise anyio.EndOfStream
        return data

    async def send(self, item: bytes) -> None:
        try:
            self._writer.write(item)
            await self._writer.drain()
        except (asyncssh.Error, OSError) as error:
            raise anyio.BrokenResourceError from error

    async def send_eof(self) -> None:
        self._writer.write_eof()

    async def aclose(self) -> None:
        self._writer.close()


class FramedStream(ByteStream):
    """The bytes inside a WebSocket."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self._frames = websocket.Frames()

    async def receive(self, max_bytes: int = _BLOCK) -> bytes:
        while not self._frames.closed:
            try:
                data = self._frames.feed(await self._stream.receive(max_bytes))
            except websocket.Broken as error:
                raise anyio.BrokenResourceError from error
            if pongs := self._frames.pongs(secrets.token_bytes(4)):
                await self._stream.send(pongs)
            if data:
                return data
        raise anyio.EndOfStream

    async def send(self, item: bytes) -> None:
        await self._stream.send(websocket.frame(item, secrets.token_bytes(4)))

    async def send_eof(self) -> None:
        await self._stream.send_eof()

    async def aclose(self) -> None:
        await self._stream.aclose()


@asynccontextmanager
async def port_screen(connection: asyncssh.SSHClientConnection, port: int) -> AsyncGenerator[ByteStream]:
    """Connect to the screen on a port of the host inside the block.

    Raises NotFound: nothing listens there, or it is not a screen. HostUnreachable: the connection broke.
    """
    nonce = secrets.token_bytes(16)
    async with _opened(connection, port) as (reader, writer):
        writer.write(websocket.request(PATH, f"localhost:{port}", nonce))
        head, rest = await _head(reader, port)
        if not head.startswith(_RFB):
            if not websocket.is_accepted(head, nonce):
                raise NotFound(f"port {port} there shows no screen: it serves neither VNC nor {PATH}")
            yield FramedStream(PortStream(reader, writer, rest))
            return
    async with _opened(connection, port) as (reader, writer):  # the first one has heard what it cannot understand
        yield PortStream(reader, writer)


async def listens(connection: asyncssh.SSHClientConnection, port: int) -> bool:
    """Whether a program listens on that port of the host. Raises HostUnreachable."""
    try:
        async with _opened(connection, port):
            return True
    except NotFound:
        return False


async def _head(reader: asyncssh.SSHReader[bytes], port: int) -> tuple[bytes, bytes]:
    """The first bytes from the port (an HTTP header or RFB), and what came after them."""
    said = b""
    try:
        with anyio.fail_after(_ANSWER_S):
            while len(said) < _LONGEST_HEAD:
                data = await reader.read(_BLOCK)
                said += data
                head, end, rest = said.partition(b"\r\n\r\n")
                if end or (len(said) >= len(_RFB) and said.startswith(_RFB)) or not data:
                    return head, rest
    except TimeoutError:
        raise NotFound(f"port {port} there accepts connections but sent nothing for {_ANSWER_S:.0f} s") from None
    except (asyncssh.Error, OSError) as error:
        raise HostUnreachable(f"the connection broke: {words_of(error)}") from error
    return said, b""


@asynccontextmanager
async def _opened(
    connection: asyncssh.SSHClientConnection, port: int
) -> AsyncGenerator[tuple[asyncssh.SSHReader[bytes], asyncssh.SSHWriter[bytes]]]:
    try:
        far = cast("Any", connection)  # its types depend on `encoding`
        reader, writer = await far.open_connection("localhost", port, encoding=None)
    except asyncssh.ChannelOpenError as error:
        raise NotFound(f"there is no screen on port {port} there: {words_of(error)}") from None
    except (asyncssh.Error, OSError) as error:
        raise HostUnreachable(f"the connection broke: {words_of(error)}") from error
    try:
        yield reader, writer
    finally:
        writer.close()
