"""How a run is shown while it goes on and when it is over.

`LiveView` redraws a terminal, `PlainLines` prints a line per event worth one. Both are ticked by their caller and read
through a store's reader on a connection of their own; neither knows the engine.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Self, TextIO

from evalfleet.answers.studies import StudyFacts
from evalfleet.answers.summary import Summary
from evalfleet.cli.shared.redraw import Redraw
from evalfleet.config import Settings
from evalfleet.model import Event, Run, TaskState
from evalfleet.report.live import LiveState, live_state
from evalfleet.report.terminal import lines
from evalfleet.report.terminal import summary as overview
from evalfleet.report.terminal.events import Feed, settled_by
from evalfleet.report.terminal.live import screen
from evalfleet.store.reader import StoreReader

FRAME_S = 0.2
READ_S = 1.0
_SHARE_OF_TIME = 10  # a read that takes t is followed by at least this many t without one
_PAGE = 1000


class LiveView:
    """Draws a run in place, at most five times a second, until it leaves its `with` block; then the terminal is as before.

    `update` may be called from any one thread at a time. It costs little more than a comparison when nothing is due.
    """

    def __init__(
        self,
        run: Run,
        *,
        redraw: Redraw | None = None,
        colour: str = "auto",
        hint: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.notice = ""  # shown until it is changed
        self._run = run
        self._redraw = redraw or Redraw(sys.stdout, colour=colour != "never")
        self._hint = hint
        self._clock = clock
        self._is_open = False
        self._state: LiveState | None = None
        self._facts: StudyFacts | None = None  # of a study: what it found so far
        self._stale = True
        self._read_at = 0.0
        self._read_again_at = float("-inf")
        self._drawn_at = float("-inf")

    def __enter__(self) -> Self:
        self._redraw.start()
        self._is_open = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._is_open = False
        self._redraw.stop()

    @property
    def state(self) -> LiveState | None:
        """What was read last."""
        return self._state

    def update(self, store: StoreReader, *, now: bool = False) -> None:
        """Read and draw again if that is due; `now` makes it due."""
        at = self._clock()
        if not now and at - self._drawn_at < FRAME_S:
            return
        self._stale |= store.changed() or at - self._read_at >= READ_S
        if now or self._state is None or (self._stale and at >= self._read_again_at):
            self._state = live_state(store, self._run)
            if self._run.policy.study is not None:
                from evalfleet.report.studies.study import (
                    study_facts,  # the whole of `tune`, which plain runs need not load
                )

                self._facts = study_facts(store, self._run)
            self._stale = False
            self._read_at = self._clock()
            # A run of 100,000 tasks takes a while to sum up; the view must not become a load of its own.
            self._read_again_at = self._read_at + _SHARE_OF_TIME * (self._read_at - at)
        self._drawn_at = at
        if self._is_open:
            self._redraw.draw(self.draw)

    def draw(self, width: int, height: int) -> list[lines.Line]:
        """Return the present frame."""
        if self._state is None:
            return []
        drift_s = max(0.0, self._clock() - self._read_at)
        if self._facts is not None:
            from evalfleet.report.terminal.study import study_screen

            return study_screen(
                self._facts, self._state, width, height, drift_s=drift_s, notice=self.notice, hint=self._hint
            )
        return screen(self._state, width, height, drift_s=drift_s, notice=self.notice, hint=self._hint)


class PlainLines:
    """Prints the run's new events, a line each, for logs and pipes. With `verbose` also claims and progress."""

    def __init__(
        self, run: Run, stream: TextIO | None = None, *, verbose: bool = False, after: int = 0, colour: str = "auto"
    ) -> None:
        self._run = run
        self._stream: TextIO = sys.stdout if stream is None else stream
        self._after = after
        self._colour = colour
        self._settled = 0 if after == 0 else None
        self._feed = Feed(verbose=verbose)

    def update(self, store: StoreReader) -> int:
        """Print what is new; returns the number of the last event."""
        while self._page(store):
            pass
        return self._after

    def _page(self, store: StoreReader) -> bool:
        with store.snapshot():
            events = store.events.of_run(self._run.id, self._after, _PAGE)
            if not events:
                return False
            counts = store.tasks.counts(self._run.id)
        total = sum(counts.values())
        full = len(events) == _PAGE
        if self._settled is None or not full:
            # Counted back from what is true at the end, so that the beginning need not be known, and no error stays.
            settled = total - counts[TaskState.QUEUED] - counts[TaskState.RUNNING]
            self._settled = settled - sum(settled_by(event) for event in events)
        lines.write(self._lines(events, total), self._stream, colour=self._colour)
        self._after = events[-1].number
        return full

    def _lines(self, events: list[Event], total: int) -> Iterator[lines.Line]:
        places = len(f"{total}")
        for event in events:
            self._settled = (self._settled or 0) + settled_by(event)
            progress = f"{max(0, min(self._settled, total)):>{places}}/{total}" if event.task is not None else ""
            line = self._feed.line(event, progress)
            if line is not None:
                yield line


def print_summary(summary: Summary, settings: Settings, stream: TextIO | None = None, *, driven: bool = True) -> None:
    """Print the state of a run, for people. `driven`: whether a controller drives a run that is not over."""
    shown = overview.overview(summary, lines.columns(), driven=driven, options=settings.home_option)
    lines.write(shown, stream, colour=settings.colour)
