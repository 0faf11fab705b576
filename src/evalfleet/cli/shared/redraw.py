"""Draws lines in place on a terminal, as often as wanted, and leaves nothing behind."""

from __future__ import annotations

import shutil
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any, TextIO, cast

from evalfleet.config import is_terminal
from evalfleet.report.terminal import lines

_HIDE, _SHOW, _CLEAR_LINE, _CLEAR_BELOW = "\x1b[?25l", "\x1b[?25h", "\x1b[K", "\x1b[J"


class Redraw:
    """One frame at the end of a terminal's text.

    What the process writes meanwhile to standard output or standard error on that terminal comes above the frame.

    Args:
        size: gives the terminal's columns and lines; it is asked for each frame, so that a resize is followed.
    """

    def __init__(
        self,
        stream: TextIO,
        *,
        colour: bool,
        size: Callable[[], Sequence[int]] = shutil.get_terminal_size,
    ) -> None:
        self._stream = stream
        self._colour = colour
        self._size = size
        self._drawn: list[int] = []  # cells of each line of the frame that is there
        self._lock = threading.RLock()
        self._streams = (sys.stdout, sys.stderr)

    def start(self) -> None:
        self._put(_HIDE)
        self._streams = (sys.stdout, sys.stderr)
        for name, stream in zip(("stdout", "stderr"), self._streams, strict=True):
            if is_terminal(stream):
                setattr(sys, name, cast("TextIO", _Above(self, stream)))

    def stop(self) -> None:
        """Take the frame away, and give the terminal back as it was."""
        sys.stdout, sys.stderr = self._streams
        self.clear()
        self._put(_SHOW)

    def draw(self, frame: Callable[[int, int], list[lines.Line]]) -> None:
        """Show a frame, made for a width and a height, in place of the one before."""
        columns, rows = self._size()
        with self._lock:
            # One line stays free: a cursor on the last line would scroll the screen at every frame.
            shown = [lines.fit(line, columns) for line in frame(columns, rows - 1)[: rows - 1]]
            text = lines.paint(shown, colour=self._colour).replace("\n", f"{_CLEAR_LINE}\n")
            self._put(self._back() + text + _CLEAR_BELOW)
            self._drawn = [lines.cells(line) for line in shown]

    def clear(self) -> None:
        with self._lock:
            self._put(self._back() + _CLEAR_BELOW if self._drawn else "")
            self._drawn = []

    def above(self, stream: TextIO, text: str) -> int:
        """Write where the frame begins; the next frame comes below."""
        with self._lock:
            self.clear()
            stream.write(text)
            stream.flush()
        return len(text)

    def _back(self) -> str:
        """Go to the frame's beginning. A terminal that became narrower has wrapped its lines."""
        columns = max(1, self._size()[0])
        up = sum(max(1, -(-cells // columns)) for cells in self._drawn)
        return f"\r\x1b[{up}A" if up else "\r"

    def _put(self, text: str) -> None:
        lines.put(text, self._stream)


class _Above:
    """A stream of the process while a frame is drawn."""

    def __init__(self, redraw: Redraw, stream: TextIO) -> None:
        self._redraw = redraw
        self._stream = stream

    def write(self, text: str) -> int:
        return self._redraw.above(self._stream, text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
