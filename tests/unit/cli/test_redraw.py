"""A frame on a terminal, seen by a terminal: the escape codes are carried out, not compared."""

from __future__ import annotations

import io
import re
import sys

import pytest

from evalfleet.cli.shared.redraw import Redraw
from evalfleet.report.terminal.lines import Line, line

_CODE = re.compile(r"\x1b\[\??(\d*)([A-Za-z])")


class Terminal(io.StringIO):
    """Enough of a terminal: text, newlines, and the codes that a frame uses."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True

    def rows(self, columns: int = 80) -> list[str]:
        """What is on the screen, with lines wrapped at its width."""
        rows, y, x, text = [""], 0, 0, self.getvalue()
        while text:
            if found := _CODE.match(text):
                text = text[found.end() :]
                match found[2]:
                    case "A":
                        y = max(0, y - int(found[1] or 1))
                    case "K":
                        rows[y] = rows[y][:x]
                    case "J":
                        rows[y:] = [rows[y][:x]]
                    case _:
                        pass
                continue
            char, text = text[0], text[1:]
            if char == "\r":
                x = 0
            elif char == "\n" or x == columns:
                y, x = y + 1, 0
                rows += [""] * (y + 1 - len(rows))
            if char not in "\r\n":
                rows[y] = rows[y][:x].ljust(x) + char + rows[y][x + 1 :]
                x += 1
        return rows


def frame(*texts: str) -> list[Line]:
    return [line(text) for text in texts]


def drawn(columns: int = 20, rows: int = 10) -> tuple[Terminal, Redraw]:
    terminal = Terminal()
    return terminal, Redraw(terminal, colour=False, size=lambda: (columns, rows))


def test_a_frame_takes_the_place_of_the_one_before():
    terminal, redraw = drawn()
    redraw.start()
    redraw.draw(lambda *_: frame("a long first line", "second", "third"))
    redraw.draw(lambda *_: frame("short", "2nd"))
    assert terminal.rows() == ["short", "2nd", ""]
    redraw.stop()
    assert terminal.rows() == [""], "nothing is left of it"


def test_a_frame_is_cut_to_the_terminal():
    terminal, redraw = drawn(columns=6, rows=4)
    redraw.draw(lambda width, height: frame(*(f"line {n} of {width}x{height}" for n in range(9))))
    shown = terminal.rows(6)
    assert len(shown) == 4, "three lines, and the cursor below"
    assert all(len(row) <= 6 for row in shown)


def test_a_terminal_that_became_narrower_is_cleaned_up():
    terminal, size = Terminal(), [20, 10]
    redraw = Redraw(terminal, colour=False, size=lambda: size)
    redraw.draw(lambda *_: frame("x" * 18, "y"))
    size[0] = 6
    redraw.draw(lambda *_: frame("x", "y"))
    ups = [int(found[1]) for found in _CODE.finditer(terminal.getvalue()) if found[2] == "A"]
    assert ups == [4], "18 cells are three lines of 6 by now, and one more"


def test_what_is_written_meanwhile_comes_above(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TERM", "xterm")
    terminal, redraw = drawn()
    monkeypatch.setattr(sys, "stderr", terminal)
    redraw.start()
    redraw.draw(lambda *_: frame("frame", "of two"))
    print("a warning", file=sys.stderr)
    redraw.draw(lambda *_: frame("frame", "again"))
    assert terminal.rows() == ["a warning", "frame", "again", ""]
    redraw.stop()
    assert terminal.rows() == ["a warning", ""]
    assert sys.stderr is terminal
