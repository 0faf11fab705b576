"""Runs fsync for ended attempts in threads, beside the loop.

An fsync waits for the disk while the CPU idles. In threads, the waits of several attempts overlap with each other (the kernel
commits them together) and with the work of the loop. The threads only fsync: they hold no lock when the loop's thread forks.
"""

from __future__ import annotations

import os
import threading
from collections import deque

from ..loop import READ

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from ..loop import Loop

THREADS = 4


class DiskSync:
    """Saves in threads and calls back in the loop's thread, in the order in which the disk finishes.

    The threads are started with the runner, because the host may not allow more threads later. Without any, the work is done in the
    loop's thread, which delays the other attempts.
    """

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._waiting: deque[tuple[Callable[[], None], Callable[[], None]]] = deque()
        self._saved: deque[Callable[[], None]] = deque()
        self._count = threading.Semaphore(0)
        self._threads = 0
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        loop.watch(self._reader, READ, self._call_back)
        self._start_threads()

    def add(self, save: Callable[[], None], saved: Callable[[], None]) -> None:
        """Run `save`, which must not raise, and call `saved` afterwards."""
        self._waiting.append((save, saved))
        self._start_threads()
        if self._threads:
            self._count.release()
        else:
            self._save_next()

    def _start_threads(self) -> None:
        while self._threads < THREADS:
            try:
                threading.Thread(target=self._work, daemon=True).start()
            except RuntimeError:
                return  # none is to be had now; the next end asks again
            self._threads += 1

    def _work(self) -> None:
        while True:
            self._count.acquire()
            self._save_next()

    def _save_next(self) -> None:
        save, saved = self._waiting.popleft()
        save()
        self._saved.append(saved)
        os.write(self._writer, b".")

    def _call_back(self, _mask: int) -> None:
        for _ in os.read(self._reader, 4096):
            self._loop.at(0.0, self._saved.popleft())  # each by itself: what one raises costs no other
