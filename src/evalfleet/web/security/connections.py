"""Limits on connections. Clients that have shown a token come first, and a flood is reported once.

Connections without a token yet are limited per address and in total. The oldest of them is closed when there are too many:
a client with a token sends it at once, one that only occupies a place does not.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

from aiohttp import web

PER_ADDRESS = 256  # connections without a token
_QUIET_S = 60.0  # between two words about a flood
_log = logging.getLogger("evalfleet.web")


class ConnectionLimit:
    """Used in the event loop's thread.

    Args:
        most: connections in all.
        shared: whether one address is many people, as a proxy's is.
    """

    def __init__(self, most: int, *, shared: bool, per_address: int = PER_ADDRESS) -> None:
        self._most = most
        self._per_address = most if shared else min(per_address, max(1, most // 2))
        self._strangers: dict[str, dict[asyncio.Transport, None]] = {}  # by address, the oldest first
        self._known: set[asyncio.Transport] = set()
        self._told_at = float("-inf")

    def guard(self, server: web.Server) -> None:
        """See every connection of the server come and go."""
        made, lost = server.connection_made, server.connection_lost

        def connection_made(handler: Any, transport: asyncio.Transport) -> None:
            made(handler, transport)
            self.came(transport)

        def connection_lost(handler: Any, error: BaseException | None = None) -> None:
            self.went(handler.transport)
            lost(handler, error)

        setattr(server, "connection_made", connection_made)  # noqa: B010 - its own, without a class of ours between
        setattr(server, "connection_lost", connection_lost)  # noqa: B010

    def came(self, transport: asyncio.Transport) -> None:
        address = _address(transport)
        here = self._strangers.setdefault(address, {})
        here[transport] = None
        if len(here) > self._per_address:
            self._close_oldest(address)
        elif len(self._known) + sum(map(len, self._strangers.values())) > self._most:
            self._close_oldest(max(self._strangers, key=lambda one: len(self._strangers[one])))

    def admitted(self, transport: asyncio.BaseTransport | None) -> None:
        """The client on this connection has shown a token."""
        if isinstance(transport, asyncio.Transport) and self._forget_stranger(transport):
            self._known.add(transport)

    def went(self, transport: asyncio.Transport | None) -> None:
        if transport is not None:
            self._known.discard(transport)
            self._forget_stranger(transport)

    def _forget_stranger(self, transport: asyncio.Transport) -> bool:
        address = _address(transport)
        here = self._strangers.get(address, {})
        found = transport in here
        here.pop(transport, None)
        if not here:
            self._strangers.pop(address, None)
        return found

    def _close_oldest(self, address: str) -> None:
        oldest = next(iter(self._strangers[address]))
        self._forget_stranger(oldest)
        oldest.abort()
        self.tell(
            f"too many connections without a token, most from {address or 'nowhere'}: the oldest of them are closed"
        )

    def tell(self, message: str) -> None:
        """Once in a while."""
        if time.monotonic() - self._told_at >= _QUIET_S:
            self._told_at = time.monotonic()
            _log.warning("%s", message)

    def heed(self, loop: asyncio.AbstractEventLoop) -> Callable[[], None]:
        """Tell of connections that could not be taken once, not once for each. Returns what ends that."""
        before = loop.get_exception_handler()

        def handler(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
            if "socket.accept()" in str(context.get("message", "")):
                self.tell("a connection could not be taken: no more open files are allowed")
            elif before is not None:
                before(loop, context)
            else:
                loop.default_exception_handler(context)

        loop.set_exception_handler(handler)
        return lambda: loop.set_exception_handler(before)


def _address(transport: asyncio.Transport) -> str:
    peer: Any = transport.get_extra_info("peername")
    return str(peer[0]) if peer else ""
