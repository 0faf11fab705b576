"""Takes the events out of what hosts report, so that they reach the event log and not only a terminal."""

from __future__ import annotations

from collections.abc import Callable

from evalfleet.core.readiness import HostEvent


class HostEvents:
    """Filters the notices of a run: passes lines on, and keeps events until they are written. Used in the loop's thread."""

    def __init__(self, notice: Callable[[str], None]) -> None:
        self._notice = notice
        self._waiting: list[HostEvent] = []

    def __call__(self, said: str | HostEvent) -> None:
        if isinstance(said, HostEvent):
            self._waiting.append(said)
        else:
            self._notice(said)

    def take(self) -> list[HostEvent]:
        """The events since the last call."""
        events, self._waiting = self._waiting, []
        return events
