"""The emulator's time.

What takes Azure minutes takes it `speed` times less, and the bill counts Azure's seconds, not ours. The time of day is
the machine's own, so that deadlines mean what their setter meant; a test may move it forward.
"""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime


class Clock:
    """`speed` is cloud seconds per second; 0 waits for nothing, and bills as 1 does."""

    def __init__(self, speed: float) -> None:
        self.speed = speed
        self._began = time.monotonic()
        self._ahead_s = 0.0
        self._moved = asyncio.Event()

    def now(self) -> float:
        """Seconds since 1970."""
        return time.time() + self._ahead_s

    def elapsed(self) -> float:
        """Cloud seconds since the emulator began; what is billed."""
        return (time.monotonic() - self._began) * (self.speed or 1.0) + self._ahead_s

    def advance(self, seconds: float) -> None:
        """Move the time of day forward; whoever waits for a moment looks again."""
        self._ahead_s += seconds
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()

    async def sleep(self, cloud_s: float) -> None:
        """Let so many cloud seconds pass."""
        await asyncio.sleep(self.real(cloud_s))

    def real(self, cloud_s: float) -> float:
        """Return how long so many cloud seconds take here."""
        return cloud_s / self.speed if self.speed else 0.0

    async def until(self, moment: float) -> None:
        """Wait for a moment of the day."""
        while (left := moment - self.now()) > 0:
            try:
                await asyncio.wait_for(self._moved.wait(), left)
            except TimeoutError:
                continue


def iso(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="microseconds")
