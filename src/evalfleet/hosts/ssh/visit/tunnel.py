"""Forwards a port of this machine to a port on or behind a host."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from random import Random
from typing import Any, cast

import anyio
import asyncssh
from anyio.abc import SocketAttribute, SocketListener, SocketStream, TaskStatus
from msgspec import Struct, field

from evalfleet.errors import HostUnreachable, InputError
from evalfleet.hosts.access import ReachableHost, pause_s
from evalfleet.hosts.base import single_error
from evalfleet.hosts.ssh.connection import Keepalive, words_of
from evalfleet.hosts.ssh.visit.connection import visit_connection
from evalfleet.layout import Home

LOCAL = "127.0.0.1"
PIECE = 1 << 16
WAIT_S = 30.0  # how long a client of the port waits while the host is reconnected
KEEPALIVE = Keepalive(interval_s=5.0)


class TunnelTarget(Struct, frozen=True, kw_only=True):
    """The destination of a tunnel, seen from the host."""

    port: int
    host: str = "localhost"

    def __str__(self) -> str:
        return f"port {self.port}" if self.host == "localhost" else f"{self.host}:{self.port}"


class _TunnelConnection(Struct):
    """The current connection."""

    connection: asyncssh.SSHClientConnection | None = None
    changed: anyio.Event = field(default_factory=anyio.Event)

    def set(self, connection: asyncssh.SSHClientConnection | None) -> None:
        self.connection = connection
        self.changed.set()
        self.changed = anyio.Event()

    async def get(self) -> asyncssh.SSHClientConnection | None:
        """Wait for the connection; None if it takes too long."""
        with anyio.move_on_after(WAIT_S):
            while self.connection is None:
                await self.changed.wait()
        return self.connection


class Tunnel:
    """The local port stays open while the connection breaks and comes back; new clients wait meanwhile."""

    def __init__(
        self,
        host: ReachableHost,
        home: Home,
        target: TunnelTarget,
        say: Callable[[str], None],
        rng: Random | None = None,
    ) -> None:
        """
        Args:
            say: called with a line whenever the connection changes.
        """
        self._host = host
        self._home = home
        self._target = target
        self._say = say
        self._rng = rng or Random()
        self._line = _TunnelConnection()
        self._told = ""

    async def serve(self, local_port: int | None, *, task_status: TaskStatus[int]) -> None:
        """Serve until cancelled. Reports the local port as started once the host is reached.

        Args:
            local_port: None for the same number as the target's port if it is free here, else any.

        Raises InputError where the port is taken; HostUnreachable and HostRefused where the first connection fails, or the host
        key changes later.
        """
        with single_error():
            async with anyio.create_task_group() as group:
                await group.start(self._keep)
                async with await self._listen(local_port) as listener:
                    task_status.started(listener.extra(SocketAttribute.local_port))
                    await listener.serve(self._pass_on)

    async def _listen(self, local_port: int | None) -> SocketListener:
        choices = [self._target.port, 0] if local_port is None else [local_port]
        why = ""
        for port in choices:
            try:
                made: Any = await anyio.create_tcp_listener(local_host=LOCAL, local_port=port)
                return made.listeners[0]
            except OSError as error:
                why = words_of(error)
        raise InputError(
            f"cannot use port {choices[0]} of {LOCAL}: {why}; choose another: {self._target.port}:LOCALPORT"
        )

    async def _keep(self, *, task_status: TaskStatus[None]) -> None:
        """Hold a connection, and reconnect when it breaks."""
        failures, is_first = 0, True
        while True:
            try:
                async with visit_connection(self._host, self._home, self._say, KEEPALIVE) as connection:
                    if is_first:
                        task_status.started()
                    elif failures:
                        self._say(f"host {self._host.name}: connected again")
                    failures, is_first = 0, False
                    self._line.set(connection)
                    try:
                        await connection.wait_closed()
                    finally:
                        self._line.set(None)
                why = f"host {self._host.name}: the connection broke"
            except HostUnreachable as error:
                if is_first:
                    raise
                why = str(error)
            failures += 1
            pause = pause_s(failures, self._rng)
            self._say(f"{why}; next try in {pause:.0f} s")
            await anyio.sleep(pause)

    async def _pass_on(self, near: SocketStream) -> None:
        async with near:
            connection = await self._line.get()
            if connection is None:
                return
            try:
                far = cast("Any", connection)  # its types depend on `encoding`
                reader, writer = await far.open_connection(self._target.host, self._target.port, encoding=None)
            except (asyncssh.Error, OSError) as error:
                self._tell_once(f"host {self._host.name}: cannot reach {self._target} from there: {words_of(error)}")
                return
            self._told = ""
            try:
                async with anyio.create_task_group() as group:
                    group.start_soon(_both, group.cancel_scope, _send, near, writer)
                    group.start_soon(_both, group.cancel_scope, _receive, near, reader)
            finally:
                writer.close()

    def _tell_once(self, text: str) -> None:
        """Report each problem once: a browser retries many times a minute."""
        if text != self._told:
            self._say(text)
        self._told = text


async def _both(scope: anyio.CancelScope, way: Callable[..., Awaitable[None]], *ends: Any) -> None:
    """Copy in one direction. If it breaks, the other direction ends too; at the end of the data, the other may continue."""
    try:
        await way(*ends)
    except (anyio.BrokenResourceError, anyio.ClosedResourceError, asyncssh.Error, OSError):
        scope.cancel()


async def _send(near: SocketStream, writer: asyncssh.SSHWriter[bytes]) -> None:
    async for data in near:
        writer.write(data)
        await writer.drain()
    writer.write_eof()


async def _receive(near: SocketStream, reader: asyncssh.SSHReader[bytes]) -> None:
    while data := await reader.read(PIECE):
        await near.send(data)
    await near.send_eof()
