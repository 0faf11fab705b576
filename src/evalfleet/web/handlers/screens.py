"""The screens of other machines: of an attempt that runs there, and of a pool's host itself."""

from __future__ import annotations

import base64
import binascii
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import cached_property

from anyio.abc import ByteStream

from evalfleet.benchmarks.base import Screen
from evalfleet.benchmarks.screens import first_screen, picture_orders
from evalfleet.config import Settings
from evalfleet.errors import HostRefused, NotFound
from evalfleet.hosts.access import ReachableHost, host_of_worker, present
from evalfleet.model import JsonObject
from evalfleet.pools.kinds import registry
from evalfleet.store.reader import StoreReader
from evalfleet.web.coalescing import Shared
from evalfleet.web.handlers.attempts import Place
from evalfleet.web.handlers.remote_attempts import FRESH_S, Remote
from evalfleet.web.host_connections import Line

_PNG = b"\x89PNG\r\n\x1a\n"


def host_named(store: StoreReader, pool_name: str, name: str) -> ReachableHost:
    """A host of a pool by its name, or by that of one of its workers. Raises NotFound, HostUnreachable."""
    pool = store.pools.get(pool_name)
    host = host_of_worker(name, registry.kind_of(pool).reachable(pool, store.hosts.of_pool(pool.name)))
    if host is None:
        raise NotFound(f"pool {pool_name} has no host {name!r}; `evalfleet pool status {pool_name}` shows what it has")
    return present(host)


class Screens:
    """Used in the event loop's thread."""

    def __init__(self, remote: Remote, settings: Settings) -> None:
        self._remote = remote
        self._lines = remote.lines
        self._settings = settings
        self._pictures: Shared[bytes] = Shared(FRESH_S, 100)

    @cached_property
    def _screen(self) -> Screen | None:
        """Of hosts; looked up late, because all benchmarks are asked."""
        return first_screen(self._settings)

    @asynccontextmanager
    async def of_attempt(self, found: Place) -> AsyncGenerator[ByteStream]:
        """The desktop of a live attempt on another machine.

        Raises NotFound: it has none. HostUnreachable, HostRefused.
        """
        seen = await self._remote.seen(found) if found.is_live else None
        if found.away is None or seen is None or not seen.has_screen:
            raise NotFound(f"attempt {found.attempt.id} has no desktop that can be watched now")
        async with self._lines.to(present(found.away)) as line, AsyncExitStack() as stack:
            yield await _opened(line, stack, seen.port, found.attempt.id)

    @asynccontextmanager
    async def of_host(self, host: ReachableHost) -> AsyncGenerator[ByteStream]:
        """What a host shows: the screen of its container, else the desktop of the attempt there that has one.

        Raises NotFound: it shows nothing. HostUnreachable, HostRefused.
        """
        async with self._lines.to(host) as line, AsyncExitStack() as stack:
            try:
                if self._screen is None:
                    raise NotFound("no benchmark has a screen")
                stream = await _opened(line, stack, self._screen.port, None)
            except NotFound as error:
                attempt = next(iter(await line.ask(lambda line: line.peek.screens())), None)
                if attempt is None:
                    raise NotFound(f"host {host.name} shows no screen: {error}; and no attempt there has one") from None
                stream = await _opened(line, stack, None, attempt)
            yield stream

    async def picture(self, host: ReachableHost) -> bytes:
        """What a host's screen shows now, as PNG. Raises NotFound, HostUnreachable, HostRefused."""
        return await self._pictures.get(host, lambda: self._picture(host))

    async def _picture(self, host: ReachableHost) -> bytes:
        from evalfleet.hosts.ssh.channel import visit_answers

        async def ask(line: Line) -> JsonObject:
            async with visit_answers(line.connection, line.place, picture_orders(self._screen)) as lines:
                async for said in lines:
                    return said
            return {}

        async with self._lines.to(host) as line:
            said = await line.ask(ask, vital=False)
        if "png" not in said:
            tried = "; ".join(str(one)[:200] for one in said.get("none", ()))
            raise NotFound(f"host {host.name} has no screen to show: {tried or 'it said nothing'}")
        try:
            data = base64.b64decode(said["png"], validate=True)
        except (binascii.Error, ValueError, TypeError):
            data = b""
        if not data.startswith(_PNG):
            raise HostRefused(f"host {host.name} answers what our program there cannot have said")
        return data


async def _opened(line: Line, stack: AsyncExitStack, port: int | None, attempt: str | None) -> ByteStream:
    """A screen that is held open by the stack: on a port, or of an attempt."""
    from evalfleet.hosts.ssh.visit.live_files import attempt_screen
    from evalfleet.hosts.ssh.visit.screen import port_screen

    async def enter(line: Line) -> ByteStream:
        if port is not None:
            return await stack.enter_async_context(port_screen(line.connection, port))
        return await stack.enter_async_context(attempt_screen(line.connection, line.place, attempt or ""))

    return await line.ask(enter, vital=False)
