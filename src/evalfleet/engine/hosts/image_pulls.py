"""Hears from what hosts say that one of them pulls an image, so that it becomes an event and not only a line on a terminal."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection

from evalfleet.core.readiness import pull_in
from evalfleet.model import JsonObject

_OF_HOST = re.compile(r"host ([^\s:]+): (.*)")
_REFUSED = "gets no work: "


class Pulls:
    """Stands before the notices of a run and passes all of them on. Used in the loop's thread."""

    def __init__(self, notice: Callable[[str], None]) -> None:
        self._notice = notice
        self._begun: dict[str, JsonObject] = {}
        self._news: list[tuple[str, JsonObject]] = []

    def __call__(self, text: str) -> None:
        self._notice(text)
        found = _OF_HOST.fullmatch(text)
        if found is None:
            return
        host, said = found.groups()
        pull = pull_in(said)
        if pull is not None and host not in self._begun:
            self._begun[host] = {"host": host, **pull}
            self._news.append(("worker.pulling", self._begun[host]))
        elif host in self._begun and pull is not None:
            self._begun[host] |= pull
        elif host in self._begun and said.startswith(_REFUSED):
            self._end(host, said)

    def news(self, reached: Collection[str]) -> list[tuple[str, JsonObject]]:
        """Events since the last call, with their data. A host that is reached has its image."""
        for host in self._begun.keys() & set(reached):
            self._end(host, None)
        news, self._news = self._news, []
        return news

    def _end(self, host: str, error: str | None) -> None:
        self._news.append(("worker.pulled", {**self._begun.pop(host), "error": error}))
