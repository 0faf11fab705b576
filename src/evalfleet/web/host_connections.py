"""The server's connections to pool hosts: one SSH connection per host, opened when a page needs it, shared by all pages, closed when
none does. It uses the pool's keys and settings. No request waits for a host longer than a few seconds.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, TypeVar

import anyio
from anyio.abc import TaskGroup

from evalfleet.errors import EvalfleetError, HostUnreachable
from evalfleet.hosts.access import ReachableHost, name_in_errors
from evalfleet.hosts.base import single_error
from evalfleet.layout import Home

if TYPE_CHECKING:
    import asyncssh

    from evalfleet.hosts.ssh.channel import RunnerPlace
    from evalfleet.hosts.ssh.visit.live_files import LiveFilesClient

T = TypeVar("T")

ANSWER_S = 10.0  # a host that needs longer is told to be away; the connection goes on being made
IDLE_S = 60.0
AGAIN_S = 5.0  # a host that failed is not knocked at again before
MOST = 200  # connections
_LOOK_S = 2.0
_KEEPALIVE_S = 5.0
_log = logging.getLogger("evalfleet.web")


class Line:
    """The connection to one host. `connection` and `peek` are there once it is open."""

    connection: asyncssh.SSHClientConnection
    peek: LiveFilesClient
    place: RunnerPlace

    def __init__(self, host: ReachableHost) -> None:
        self.host = host
        self.users = 0
        self.used_at = self.ended_at = time.monotonic()
        self.error: EvalfleetError | None = None
        self.is_over = False
        self._settled = asyncio.Event()  # open, or failed
        self._dropped = asyncio.Event()

    @property
    def is_good(self) -> bool:
        """Whether it can be used, or may be soon; a failed one keeps its error for a while."""
        if self.is_over:
            return self.error is not None and time.monotonic() - self.ended_at < AGAIN_S
        return not self._is_broken

    @property
    def _is_broken(self) -> bool:
        is_open = self._settled.is_set() and not self.is_over
        return self._dropped.is_set() or (is_open and (self.peek.broken is not None or self.connection.is_closed()))

    async def opened(self) -> None:
        """Wait until it is open, but not long. Raises what it failed with."""
        try:
            async with asyncio.timeout(ANSWER_S):
                await self._settled.wait()
        except TimeoutError:
            raise self._silent() from None
        if self.error is not None:
            raise type(self.error)(str(self.error)) from None

    async def ask(self, question: Callable[[Line], Awaitable[T]], *, vital: bool = True) -> T:
        """Ask something that has to be answered soon. Raises HostUnreachable where it is not.

        Args:
            vital: what is always answered at once; a connection on which it is not is given up.
        """
        try:
            with name_in_errors(self.host.name):
                async with asyncio.timeout(ANSWER_S):
                    return await question(self)
        except TimeoutError:
            if vital:
                self._dropped.set()
            raise self._silent() from None

    def open(self, connection: asyncssh.SSHClientConnection, place: RunnerPlace, peek: LiveFilesClient) -> None:
        self.connection, self.place, self.peek = connection, place, peek
        self._settled.set()

    def end(self, error: EvalfleetError | None) -> None:
        self.error, self.is_over, self.ended_at = error, True, time.monotonic()
        self._settled.set()

    async def unused(self) -> None:
        """Return once it was unused for a while, or cannot be used any more."""
        while self.users or time.monotonic() - self.used_at < IDLE_S:
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_S):
                    await self._dropped.wait()
            if self._is_broken:
                return

    def _silent(self) -> HostUnreachable:
        return HostUnreachable(
            f"host {self.host.name}: has not answered for {ANSWER_S:.0f} s; look whether it is up: "
            f"`evalfleet pool status {self.host.pool}`"
        )


class Lines:
    """All connections of a server. `serve` must run while they are used."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._lines: dict[str, Line] = {}
        self._group: TaskGroup | None = None

    async def serve(self) -> None:
        """Hold connections until cancelled; then close them."""
        async with anyio.create_task_group() as self._group:
            await anyio.sleep_forever()

    @asynccontextmanager
    async def to(self, host: ReachableHost) -> AsyncGenerator[Line]:
        """The connection to a host, held open inside the block. Raises HostUnreachable, HostRefused."""
        line = self._lines.get(host.name)
        if line is None or line.host != host or not line.is_good:
            line = self._begin(host)
        line.users += 1
        try:
            await line.opened()
            yield line
        finally:
            line.users -= 1
            line.used_at = time.monotonic()

    def _begin(self, host: ReachableHost) -> Line:
        if self._group is None:
            raise HostUnreachable(f"host {host.name}: this server is ending")
        live = {name: line for name, line in self._lines.items() if line.is_good}
        if len(live) >= MOST:
            raise HostUnreachable(f"host {host.name}: this server looks at {MOST} hosts already; close some pages")
        line = Line(host)
        self._lines = {**live, host.name: line}
        self._group.start_soon(self._keep, line)
        return line

    async def _keep(self, line: Line) -> None:
        error: EvalfleetError | None = None
        try:
            await self._serve(line)
        except EvalfleetError as raised:
            error = raised
        except Exception:  # noqa: BLE001 - one host must not end the server
            _log.exception("the connection to host %s failed", line.host.name)
            error = HostUnreachable(f"host {line.host.name}: an internal error; the server's log has the traceback")
        finally:
            line.end(error)

    async def _serve(self, line: Line) -> None:
        """Raises BackendError; ConfigError where the SSH library is missing."""
        from evalfleet.hosts.ssh.channel import RunnerPlace
        from evalfleet.hosts.ssh.connection import Keepalive  # after `ssh`, which says what to install
        from evalfleet.hosts.ssh.visit.connection import visit_connection
        from evalfleet.hosts.ssh.visit.live_files import live_files_client

        host = line.host
        place = RunnerPlace(folder=host.spec.folder, python=host.spec.python)
        with single_error():
            async with visit_connection(
                host, self._home, _log.warning, Keepalive(interval_s=_KEEPALIVE_S)
            ) as connection:
                with name_in_errors(host.name), single_error():
                    async with live_files_client(connection, place) as peek:
                        line.open(connection, place, peek)
                        await line.unused()
