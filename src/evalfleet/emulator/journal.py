"""The numbered events of the emulator, and its recorded HTTP exchanges."""

from __future__ import annotations

import asyncio
import base64
import json
from collections import deque
from collections.abc import Mapping
from typing import IO, Any, cast

from evalfleet.emulator.clock import Clock

EVENTS_AT_MOST = 100_000
EXCHANGES_AT_MOST = 5_000


class Journal:
    """Append-only, in memory; the oldest lines go when there are very many."""

    def __init__(self, clock: Clock, file: IO[str] | None = None) -> None:
        self._clock = clock
        self._file = file  # all exchanges, as lines of JSON
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

    def record(
        self,
        *,
        method: str,
        path: str,
        query: str = "",
        headers: Mapping[str, str] | None = None,
        request: Any = None,
        status: int | None = None,
        answer: Any = None,
        answer_headers: Mapping[str, str] | None = None,
    ) -> None:
        """Keep one exchange: to be checked against the official schemas, and to be searched for what must not be in it."""
        exchange = {"method": method, "path": path, "query": query, "headers": dict(headers or {}), "request": request}
        exchange |= {"status": status, "answer": answer, "answer_headers": dict(answer_headers or {})}
        self._exchanges.append(exchange)
        if self._file is not None:
            self._file.write(json.dumps(exchange) + "\n")
            self._file.flush()

    def events(self, after: int = 0, kind: str | None = None) -> list[dict[str, Any]]:
        return [event for event in self._events if event["number"] > after and kind in (None, event["type"])]

    async def news(self, after: int, kind: str | None) -> list[dict[str, Any]]:
        """Return such events, as soon as there is one."""
        while not (found := self.events(after, kind)):
            await self._told.wait()
        return found

    def exchanges(self, text: str | None = None) -> list[dict[str, Any]]:
        """Return the exchanges, or those that have a text in them, be it in what is encoded there."""
        return [each for each in self._exchanges if text is None or text in _searchable(each)]


def _searchable(exchange: Mapping[str, Any]) -> str:
    """Return all words of an exchange, with the user data of a VM in the clear."""
    data: Any = exchange["request"]
    for name in ("properties", "osProfile", "customData"):
        data = cast("dict[str, Any]", data).get(name) if isinstance(data, dict) else None
    plain = base64.b64decode(data).decode(errors="replace") if isinstance(data, str) else ""
    return json.dumps(exchange, ensure_ascii=False) + plain
