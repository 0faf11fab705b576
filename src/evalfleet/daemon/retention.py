"""What `serve` removes of finished runs once an hour, as [retention] says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Event

import anyio
import anyio.to_thread

from evalfleet.core.retention import Rules
from evalfleet.errors import EvalfleetError
from evalfleet.operations.housekeeping.prune import prune
from evalfleet.report.text import count, size

EVERY_S = 3600.0
FIRST_S = 60.0  # after a start there is other work


class RetentionService:
    """Used in the event loop's thread; files go in another one."""

    def __init__(self, home: Path, rules: Rules, notice: Callable[[str], None], *, first_s: float = FIRST_S) -> None:
        self._home = home
        self._rules = rules
        self._notice = notice
        self._first_s = first_s
        self._stop = Event()

    async def serve(self) -> None:
        """Until cancelled; then it ends after the file at hand, and the next server goes on."""
        if not self._rules.is_set:
            return
        try:
            await anyio.sleep(self._first_s)
            while True:
                await self._prune()
                await anyio.sleep(EVERY_S)
        finally:
            self._stop.set()

    async def _prune(self) -> None:
        def work() -> None:
            done = prune(self._home, self._rules, stop=self._stop.is_set)
            if done.removed:
                runs = len({one.run for one in done.removed})
                self._notice(
                    f"retention removed {count(done.files, 'file')} of {count(runs, 'run')}, {size(done.bytes)}"
                )

        try:
            await anyio.to_thread.run_sync(work, abandon_on_cancel=True)
        except (EvalfleetError, OSError) as error:  # another prune is at work, the store is busy: the next hour
            self._notice(f"retention: {error}")
