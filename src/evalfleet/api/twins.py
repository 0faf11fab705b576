"""The asynchronous twins of the handles' methods: the same work in a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Concatenate, ParamSpec, TypeVar

import anyio
import anyio.to_thread

from evalfleet.errors import Refused

P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")


def in_thread(function: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """The twin of a method that waits, for event loops."""

    async def twin(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await anyio.to_thread.run_sync(partial(function, self, *args, **kwargs))

    twin.__name__ = f"{function.__name__}_async"
    twin.__qualname__ = f"{function.__qualname__}_async"
    twin.__doc__ = f"`{function.__name__}` for asyncio."
    return twin


def in_own_loop(function: Callable[[], Coroutine[Any, Any, T]], twin: str) -> T:
    """Run a coroutine to its end. Raises Refused inside a running event loop, and names the twin to use there."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return anyio.run(function)
    raise Refused(f"this thread runs an event loop already; write `await {twin}()` there")
