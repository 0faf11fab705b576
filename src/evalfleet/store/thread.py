"""The one thread through which an event loop uses its store, which is synchronous and used by one thread at a time."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import ParamSpec, TypeVar

import anyio
import anyio.to_thread

from evalfleet.errors import StoreBusy

P = ParamSpec("P")
T = TypeVar("T")

_TRIES = 20  # of half a minute each: a stopped process of another run must not end ours


class StoreThread:
    """Makes calls one after another, off the event loop: `await thread.call(store.runs.get, run_id)`.

    Also for functions of our own that use the store several times. A call that has begun is never abandoned half way.
    """

    def __init__(self) -> None:
        self._limiter = anyio.CapacityLimiter(1)

    async def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call, and call again where the store was busy: then nothing was changed."""
        bound = partial(function, *args, **kwargs)
        for _ in range(_TRIES):
            try:
                return await anyio.to_thread.run_sync(bound, limiter=self._limiter)
            except StoreBusy:
                continue
        return await anyio.to_thread.run_sync(bound, limiter=self._limiter)

    async def finish(self, function: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
        """Call even while we are being cancelled: for what must be left in order."""
        with anyio.CancelScope(shield=True):
            await self.call(function, *args, **kwargs)
