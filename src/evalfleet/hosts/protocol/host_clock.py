"""Translates a host's times into the controller's: a host's clock may be wrong by minutes, and no decision depends on it."""

from __future__ import annotations

import time
from math import inf

from evalfleet.model import JsonObject

MOMENTS = ("at", "started_at", "ready_at", "ended_at")
_SLACK_S = 0.05
# Like the store's clock: the wall time is read once, so that setting this machine's clock moves no attempt.
_BEGUN = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)


def our_time() -> float:
    return _BEGUN + time.clock_gettime(time.CLOCK_BOOTTIME)


class HostClock:
    """The offset between a host's clock and ours, learned from its answers. Pure."""

    def __init__(self) -> None:
        self._offset_s = 0.0
        self._doubt_s = inf

    def learn(self, theirs: float, asked_at: float, answered_at: float) -> None:
        """Note that the host's clock showed `theirs` at some moment between these two of our clock.

        An answer that took much longer than the fastest one is less precise than what is known already.
        """
        doubt_s = (answered_at - asked_at) / 2
        if not 0 <= doubt_s <= 2 * self._doubt_s + _SLACK_S:
            return
        self._doubt_s = min(doubt_s, self._doubt_s)
        offset_s = (asked_at + answered_at) / 2 - theirs
        # Clocks that agree as far as can be seen are left alone: a correction would only add the noise of the line.
        self._offset_s = offset_s if abs(offset_s) > doubt_s + _SLACK_S else 0.0

    def theirs(self, ours: float) -> float | None:
        """Convert to the host's clock; None while its offset is unknown."""
        return None if self._doubt_s == inf else ours - self._offset_s

    def translate(self, event: JsonObject) -> None:
        """Convert the host's times in a message to ours."""
        for name in MOMENTS if self._offset_s else ():
            value = event.get(name)
            if isinstance(value, float | int):
                event[name] = round(value + self._offset_s, 6)
