"""The store's clock: wall time, but steady."""

from __future__ import annotations

import time


class SteadyClock:
    """Starts at the wall time and then advances with the time since boot.

    Setting the machine's clock during a run must not make retries wait for hours or leases expire.
    """

    def __init__(self) -> None:
        self._offset_s = time.time() - _elapsed_s()

    def __call__(self) -> float:
        return _elapsed_s() + self._offset_s


def _elapsed_s() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)  # unlike the monotonic clock it goes on while the machine sleeps
