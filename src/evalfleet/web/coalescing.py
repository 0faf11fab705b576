"""What several ask for at about the same time is fetched once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from msgspec import Struct

T = TypeVar("T")


class _Kept(Generic[T], Struct):
    task: asyncio.Task[T]
    ended_at: float | None = None


class Shared(Generic[T]):
    """Answers, and errors too, that are kept for a while. Used in the event loop's thread."""

    def __init__(self, kept_s: float, most: int) -> None:
        """
        Args:
            kept_s: how long an answer is good after it came.
            most: answers that are kept; the oldest go first.
        """
        self._kept_s = kept_s
        self._most = most
        self._kept: dict[Hashable, _Kept[T]] = {}

    async def get(self, key: Hashable, fetch: Callable[[], Awaitable[T]]) -> T:
        """The answer for the key. Requests meanwhile wait for the same answer; an aborted one does not stop the others."""
        kept = self._kept.get(key)
        if kept is None or not self._is_good(kept):
            kept = self._kept[key] = _Kept(asyncio.ensure_future(_task(fetch)))
            kept.task.add_done_callback(lambda done: _ended(kept, done))
            self._trim()
        return await asyncio.shield(kept.task)

    def forget(self, key: Hashable) -> None:
        self._kept.pop(key, None)

    def close(self) -> None:
        for kept in self._kept.values():
            kept.task.cancel()
        self._kept.clear()

    def _is_good(self, kept: _Kept[T]) -> bool:
        return kept.ended_at is None or time.monotonic() - kept.ended_at <= self._kept_s

    def _trim(self) -> None:
        over = len(self._kept) - self._most
        if over > 0:
            done = [key for key, kept in self._kept.items() if kept.ended_at is not None]
            for key in done[:over]:
                del self._kept[key]


async def _task(fetch: Callable[[], Awaitable[T]]) -> T:
    return await fetch()


def _ended(kept: _Kept[T], done: asyncio.Task[T]) -> None:
    kept.ended_at = time.monotonic()
    if not done.cancelled():
        done.exception()  # looked at, even where nobody waits for it any more
