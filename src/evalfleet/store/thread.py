"""The one thread through which an event loop speaks to its store, which is synchronous and used by one thread at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import anyio
import anyio.to_thread

from evalfleet.errors import StoreBusy

T = TypeVar("T")

_PATIENCE = 20  # times half a minute: somebody else's stopped process must not end our run


class Clerk:
    """Runs calls one after another, off the event loop. A call that has begun is never abandoned half way."""

    def __init__(self) -> None:
        self._limiter = anyio.CapacityLimiter(1)

    async def call(self, function: Callable[[], T]) -> T:
        """Call; again where the store was busy, for then nothing was changed."""
        for _ in range(_PATIENCE):
            try:
                return await anyio.to_thread.run_sync(function, limiter=self._limiter)
            except StoreBusy:
                continue
        return await anyio.to_thread.run_sync(function, limiter=self._limiter)

    async def finish(self, function: Callable[[], None]) -> None:
        """Call although we are being cancelled: for what must be left in order."""
        with anyio.CancelScope(shield=True):
            await self.call(function)
