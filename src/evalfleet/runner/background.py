"""Runs long file work in forked children, so that the runner's loop is not blocked."""

from __future__ import annotations

import os
import signal
import time

from . import jsontext
from .attempt import process_tree
from .loop import READ

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .loop import Loop


class BackgroundWork:
    """Starts the children and receives their results."""

    def __init__(self, loop: Loop, pids: set[int], leave: Callable[[], None]) -> None:
        """
        Args:
            pids: the set that holds their pids while they live.
            leave: called in the child; closes files that must not stay open when the runner dies.
        """
        self._loop = loop
        self._leave = leave
        self._pids = pids

    def run(
        self, work: Callable[[], dict[str, Any]], done: Callable[[dict[str, Any] | None], None], patience_s: float
    ) -> None:
        """Run `work` in a child; `done` is called with its result, or None if it failed or took too long.

        Raises:
            OSError: no process can be started.
        """
        reader, writer = os.pipe()
        try:
            pid = os.fork()
        except OSError:
            os.close(reader)
            os.close(writer)
            raise
        if pid == 0:
            status = 1
            try:
                for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
                    signal.signal(number, signal.SIG_DFL)
                signal.set_wakeup_fd(-1)
                self._leave()
                data = jsontext.encode(work())
                while data:
                    data = data[os.write(writer, data) :]
                status = 0
            finally:
                os._exit(status)
        os.close(writer)
        self._pids.add(pid)
        self._follow(pid, reader, done, patience_s)

    def _follow(self, pid: int, reader: int, done: Callable[[dict[str, Any] | None], None], patience_s: float) -> None:
        pieces: list[bytes] = []
        timer = self._loop.at(time.monotonic() + patience_s, lambda: process_tree.kill(pid))

        def readable(_mask: int) -> None:
            data = os.read(reader, 1 << 16)
            if data:
                pieces.append(data)
                return
            timer.cancel()
            self._loop.unwatch(reader)
            os.close(reader)
            whole = b"".join(pieces)
            done(jsontext.parse_own(whole) if whole.endswith(b"\n") else None)

        self._loop.watch(reader, READ, readable)
