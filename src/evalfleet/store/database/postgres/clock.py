"""The clock of a server, as one of its clients tells it without asking each time."""

from __future__ import annotations

import time

AGAIN_S = 10.0  # how often the server is asked


class ServerClock:
    """The server's time when it last answered, and what has passed here since. It never goes back."""

    def __init__(self) -> None:
        self._offset_s = 0.0
        self._told = 0.0
        self._asked_s = float("-inf")

    def is_due(self) -> bool:
        return _elapsed_s() - self._asked_s > AGAIN_S

    def set(self, server_s: float, asked_s: float) -> None:
        """Args:
        server_s: what the server answered.
        asked_s: `elapsed()` when it was asked.
        """
        now_s = _elapsed_s()
        self._offset_s = server_s - (asked_s + now_s) / 2
        self._asked_s = now_s

    def __call__(self) -> float:
        self._told = max(self._told, _elapsed_s() + self._offset_s)
        return self._told

    @staticmethod
    def elapsed() -> float:
        return _elapsed_s()


def _elapsed_s() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)
