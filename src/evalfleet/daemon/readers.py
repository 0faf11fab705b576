"""Reading the store for many requests at once: a few connections, each used by one thread at a time, and shared answers.

A hundred open pages ask the same questions whenever something happens. An answer is computed once, encoded once, and given to all
who ask until a later event makes it old; while it is computed, others who ask for it wait for the same one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from evalfleet.errors import StoreError
from evalfleet.store.open import open_reader
from evalfleet.store.reader import StoreReader

T = TypeVar("T")

_CONNECTIONS = 3
_KEPT = 500  # answers
_FRESH_S = 1.0  # an answer says how long things take by now, so it ages without an event, too
_SHARE_OF_TIME = 5  # an answer that took t to compute is kept for at least so many t

_encoder = msgspec.json.Encoder()


class Answer(Struct, frozen=True, kw_only=True):
    """A JSON body, and the number of the event up to which it is whole."""

    body: bytes
    event: int


class _Kept(Struct):
    answer: asyncio.Future[Answer]
    asked_at: float
    took_s: float = 0.0


class Readers:
    """Used in the event loop's thread; what it calls runs in threads of its own."""

    def __init__(self, home: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._threads = ThreadPoolExecutor(_CONNECTIONS, thread_name_prefix="web-reader")
        self._free: SimpleQueue[StoreReader] = SimpleQueue()
        self._home = home
        self._kept: dict[Hashable, _Kept] = {}
        self._newest = 0
        self._wrote_at = float("-inf")

    def open(self) -> None:
        """Raises StoreError."""
        for _ in range(_CONNECTIONS):
            reader = open_reader(self._home)
            if reader is None:
                raise StoreError(f"there is no database in {self._home}")
            self._free.put(reader)

    def close(self) -> None:
        self._threads.shutdown(wait=True)
        while not self._free.empty():
            self._free.get().close()

    def happened(self, number: int) -> None:
        """An event was seen: answers that do not include it are old."""
        self._newest = max(self._newest, number)

    def wrote(self) -> None:
        """We changed something: every later question is answered anew, however young the last answer is."""
        self._wrote_at = self._clock()

    async def call(self, function: Callable[[StoreReader], T]) -> T:
        """Call with a connection, in a thread."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._with_reader, function)

    async def fresh(self, function: Callable[[StoreReader], Any]) -> Answer:
        """The JSON of what the function returns, for this one who asks."""
        return await self.call(lambda reader: _answer(reader, function))

    async def answer(self, key: Hashable, function: Callable[[StoreReader], Any]) -> Answer:
        """The JSON of what the function returns; shared with all who ask for `key` at about the same time."""
        kept = self._kept.get(key)
        if kept is not None and self._is_good(kept):
            return await asyncio.shield(kept.answer)
        future: asyncio.Future[Answer] = asyncio.ensure_future(self.call(lambda reader: _answer(reader, function)))
        kept = self._kept[key] = _Kept(answer=future, asked_at=self._clock())
        future.add_done_callback(lambda done: self._computed(key, kept, done))
        self._trim()
        return await asyncio.shield(future)

    def _computed(self, key: Hashable, kept: _Kept, done: asyncio.Future[Answer]) -> None:
        kept.took_s = self._clock() - kept.asked_at
        if (done.cancelled() or done.exception() is not None) and self._kept.get(key) is kept:
            del self._kept[key]

    def _is_good(self, kept: _Kept) -> bool:
        if kept.asked_at < self._wrote_at:
            return False
        if not kept.answer.done():
            return True
        age = self._clock() - kept.asked_at
        if age < kept.took_s * _SHARE_OF_TIME:
            return True
        return age <= _FRESH_S and kept.answer.result().event >= self._newest

    def _trim(self) -> None:
        while len(self._kept) > _KEPT:
            del self._kept[next(iter(self._kept))]

    def _with_reader(self, function: Callable[[StoreReader], T]) -> T:
        reader = self._free.get()
        try:
            return function(reader)
        finally:
            self._free.put(reader)


def _answer(reader: StoreReader, function: Callable[[StoreReader], Any]) -> Answer:
    # The number is read first: what is read after it includes that event.
    event = reader.events.last_number()
    return Answer(body=_encoder.encode(function(reader)), event=event)
