"""The store's clock: wall time, but steady."""

from __future__ import annotations

import time


class SteadyClock:
    """The wall time of its making, going on as the time since boot does.

    Somebody who sets the machine's clock while a run goes on must not make retries wait for hours or leases run out.
    """

    def __init__(self) -> None:
        self._offset_s = time.time() - _elapsed_s()

    def __call__(self) -> float:
        return _elapsed_s() + self._offset_s


def _elapsed_s() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)  # unlike the monotonic clock it goes on while the machine sleeps
