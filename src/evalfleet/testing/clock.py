"""Time that passes only when a test says so."""

from __future__ import annotations


class FakeClock:
    """A clock for everything that takes a `() -> float`. Starts at a moment that is not 0, as real ones do."""

    def __init__(self, now: float = 1_000_000.0) -> None:
        self._now = now

    def __call__(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        self._now += seconds
