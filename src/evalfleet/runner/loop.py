"""The runner's event loop: readable files, timers, and a step before each sleep."""

from __future__ import annotations

import heapq
import selectors
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

READ = selectors.EVENT_READ
WRITE = selectors.EVENT_WRITE


class Timer:
    """One call at a given time, unless cancelled."""

    __slots__ = ("call", "cancelled")

    def __init__(self, call: Callable[[], None]) -> None:
        self.call = call
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class Loop:
    """Runs callbacks; sleeps while there is nothing to do."""

    def __init__(self, failed: Callable[[Exception], None]) -> None:
        """
        Args:
            failed: called with an exception of a callback. The loop continues: one broken connection must not end every attempt.
        """
        self._selector = selectors.DefaultSelector()
        self._timers: list[tuple[float, int, Timer]] = []
        self._count = 0
        self._failed = failed
        self._stopped = False
        self.before_sleep: Callable[[], None] = lambda: None

    def watch(self, fd: int, mask: int, call: Callable[[int], None]) -> None:
        self._selector.register(fd, mask, call)

    def rewatch(self, fd: int, mask: int, call: Callable[[int], None]) -> None:
        self._selector.modify(fd, mask, call)

    def unwatch(self, fd: int) -> None:
        self._selector.unregister(fd)

    def forget(self, fd: int) -> None:
        """Like `unwatch`, but ignores a file that is not watched."""
        if fd in self._selector.get_map():
            self._selector.unregister(fd)

    def at(self, when: float, call: Callable[[], None]) -> Timer:
        """Call back at a time of `time.monotonic`."""
        timer = Timer(call)
        self._count += 1
        heapq.heappush(self._timers, (when, self._count, timer))
        return timer

    def stop(self) -> None:
        self._stopped = True

    def run(self) -> None:
        self._call_plain(self.before_sleep)
        while not self._stopped:
            for key, mask in self._selector.select(self._wait()):
                # an earlier callback of this round may have closed it
                if self._selector.get_map().get(key.fd) is key:
                    self._call(key.data, mask)
            self._fire()
            self._call_plain(self.before_sleep)

    def close(self) -> None:
        self._selector.close()

    def _wait(self) -> float | None:
        while self._timers and self._timers[0][2].cancelled:
            heapq.heappop(self._timers)
        return max(0.0, self._timers[0][0] - time.monotonic()) if self._timers else None

    def _fire(self) -> None:
        now = time.monotonic()
        while self._timers and (self._timers[0][0] <= now or self._timers[0][2].cancelled):
            timer = heapq.heappop(self._timers)[2]
            if not timer.cancelled:
                timer.cancelled = True
                self._call_plain(timer.call)

    def _call(self, call: Callable[[int], None], mask: int) -> None:
        try:
            call(mask)
        except Exception as error:  # boundary: the service loop
            self._failed(error)

    def _call_plain(self, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception as error:  # boundary: the service loop
            self._failed(error)
