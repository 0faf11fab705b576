"""Solutions for the tasks of `desk` in the editor Mousepad."""

from __future__ import annotations

from evalfleet.agents.base import Press, Write
from evalfleet.agents.solutions.screen import ENTER, Screen, Script, Steps, alt, control

_TOP = control("Home")
_BOTTOM = control("End")
_UNSAVED = "*"  # begins the title of a changed document


def save(screen: Screen) -> Steps:
    """Save under the name that the document has."""
    yield [control("s")]
    yield from screen.until(lambda: not screen.has(_UNSAVED), "the document to be saved")


def _save_as(screen: Screen, key: Press, path: str) -> Steps:
    yield [key]
    yield from screen.active("Save As")
    yield [control("a"), Write(text=path)]
    # The first Enter may only close the list of names that fit.
    yield from screen.press_until(ENTER, lambda: not screen.has("Save As"), "the dialog to close")
    name = path.rpartition("/")[2]
    yield from screen.until(lambda: screen.has(name) and not screen.has(_UNSAVED), f"{name} to be saved")


def _write_note(screen: Screen) -> Steps:
    yield [Write(text=screen.quoted(0))]
    yield from screen.until(lambda: screen.has(_UNSAVED), "the text to be there")
    yield from _save_as(screen, control("s"), f"{screen.quoted(2)}/{screen.quoted(1)}")


def _append_line(screen: Screen) -> Steps:
    yield [_BOTTOM, Write(text=screen.quoted(0))]
    yield from save(screen)


def _delete_line(screen: Screen) -> Steps:
    yield [_TOP, Press(key="ArrowDown", times=2), Press(key="End", held=("Shift",)), Press(key="Delete", times=2)]
    yield from save(screen)


def _replace_word(screen: Screen) -> Steps:
    yield [control("r")]
    yield from screen.active("Find and Replace")
    yield [Write(text=screen.quoted(0)), Press(key="Tab"), Write(text=screen.quoted(1))]
    yield [alt("a")]  # all of them
    yield [alt("r")]
    yield from screen.until(lambda: screen.has(_UNSAVED), "the words to be replaced")
    yield [Press(key="Escape")]
    yield from screen.gone("Find and Replace")
    yield from save(screen)


def _save_copy(screen: Screen) -> Steps:
    yield from _save_as(screen, control("s", "Shift"), f"{screen.quoted(1)}/{screen.quoted(0)}")


def _copy_line(screen: Screen) -> Steps:
    yield [_TOP, Press(key="ArrowDown"), Press(key="End", held=("Shift",)), control("c")]
    yield from screen.until(lambda: screen.clipboard is not None, "something on the clipboard")


def _line_numbers(screen: Screen) -> Steps:
    yield [alt("v")]
    yield [Press(key="ArrowDown", times=2), ENTER]


def _word_wrap(screen: Screen) -> Steps:
    yield [alt("d")]
    yield [Press(key="w")]


SCRIPTS: dict[str, Script] = {
    "append-line": _append_line,
    "copy-line": _copy_line,
    "delete-line": _delete_line,
    "line-numbers": _line_numbers,
    "replace-word": _replace_word,
    "save-copy": _save_copy,
    "word-wrap": _word_wrap,
    "write-note": _write_note,
}
