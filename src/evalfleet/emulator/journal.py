"""What happened in the emulator, numbered, for people and for tests; and the exchanges with its clients."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

from evalfleet.emulator.clock import Clock

EVENTS_AT_MOST = 100_000
EXCHANGES_AT_MOST = 5_000


class Journal:
    """Append-only, in memory; the oldest lines go when there are very many."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._number = 0
        self._events: deque[dict[str, Any]] = deque(maxlen=EVENTS_AT_MOST)
        self._exchanges: deque[dict[str, Any]] = deque(maxlen=EXCHANGES_AT_MOST)
        self._told = asyncio.Event()

    def tell(self, kind: str, subject: str = "", **data: Any) -> None:
        self._number += 1
        self._events.append(
            {"number": self._number, "at": self._clock.now(), "type": kind, "subject": subject, "data": data}
        )
        told, self._told = self._told, asyncio.Event()
        told.set()

    def record(self, *, method: str, path: str, query: str, request: Any, status: int, answer: Any) -> None:
        """Keep one exchange, so that a test can check it against the official schemas."""
        self._exchanges.append(
            {"method": method, "path": path, "query": query, "request": request, "status": status, "answer": answer}
        )

    def events(self, after: int = 0, kind: str | None = None) -> list[dict[str, Any]]:
        return [event for event in self._events if event["number"] > after and kind in (None, event["type"])]

    async def news(self, after: int, kind: str | None) -> list[dict[str, Any]]:
        """Return such events, as soon as there is one."""
        while not (found := self.events(after, kind)):
            await self._told.wait()
        return found

    def exchanges(self) -> list[dict[str, Any]]:
        return list(self._exchanges)
