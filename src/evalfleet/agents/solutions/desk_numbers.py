"""Solutions for the tasks of `desk` in a calculator, in LibreOffice Calc, and in several applications at once."""

from __future__ import annotations

from evalfleet.agents.base import Click, Press, Wait, Write
from evalfleet.agents.solutions.desk_mousepad import save
from evalfleet.agents.solutions.screen import ENTER, NotSeen, Screen, Script, Steps, alt, control

_CALCULATOR = "galculator"
_PRESSED_S = 0.3  # GTK shows a button as pressed for 0.25 s


def _copy_result(screen: Screen) -> Steps:
    yield [control("c")]
    yield from screen.until(lambda: screen.clipboard is not None, "something on the clipboard")


def _type_slowly(text: str) -> Steps:
    """Type into the calculator, which does not take the same key again while its button still looks pressed."""
    part = ""
    for character in text:
        if character in part:
            yield [Write(text=part)]
            yield [Wait(seconds=_PRESSED_S)]
            part = ""
        part += character
    yield [Write(text=part)]


def _calculated(formula: str) -> Script:
    def script(screen: Screen) -> Steps:
        yield from _type_slowly(f"{formula}\n")
        yield from _copy_result(screen)

    return script


def _square_root(screen: Screen) -> Steps:
    yield [Write(text="1764")]
    window = screen.window(_CALCULATOR)
    if window is None:
        raise NotSeen("there is no calculator")
    # The last button of the first row of digits; the rows fill the lower part of the window.
    box = window.box
    yield [Click(x=box.x + box.width * 0.89, y=box.y + box.height * 0.58)]
    yield from _copy_result(screen)


def _scientific_mode(screen: Screen) -> Steps:
    yield [alt("v")]
    yield [Press(key="s")]
    yield [control("q")]
    yield from screen.until(lambda: not screen.windows, "the calculator to close")


def _calculate_and_note(screen: Screen) -> Steps:
    yield [Write(text="128*49"), ENTER]
    yield from _copy_result(screen)
    yield from screen.focus("answer.txt")
    yield [control("End"), control("v")]
    yield from screen.until(lambda: screen.has("*"), "the result to be pasted")
    yield from save(screen)


def _close_windows(screen: Screen) -> Steps:
    for title in ("Terminal", "Documents"):
        yield from screen.active(title)
        yield [alt("F4")]
        yield from screen.gone(title)


def _in_cell(name: str, text: str) -> Steps:
    """Write into a cell, which is reached by the field that names the current one."""
    yield [control("t", "Shift")]
    yield [Write(text=name), ENTER]
    yield [Write(text=text), ENTER]


def _save_and_quit(screen: Screen) -> Steps:
    """Save, and leave: the window closes when the file is written."""
    yield [control("s")]
    yield [control("q")]
    yield from screen.gone("LibreOffice")


def _sum_column(screen: Screen) -> Steps:
    yield from _in_cell("B6", "=SUM(B2:B5)")
    yield from _save_and_quit(screen)


def _change_cell(screen: Screen) -> Steps:
    yield from _in_cell("B3", "1.25")
    yield from _save_and_quit(screen)


def _save_as_csv(screen: Screen) -> Steps:
    yield [control("s", "Shift")]
    yield from screen.active("Save")
    yield [control("a"), Write(text=screen.quoted(0))]
    yield from screen.press_until(ENTER, lambda: screen.has("Export Text File"), "the options for text to show")
    yield [ENTER]
    yield from screen.active("table.csv")


SCRIPTS: dict[str, Script] = {
    "add-prices": _calculated("12.5+7.75+100"),
    "multiply": _calculated("37*45"),
    "scientific-mode": _scientific_mode,
    "square-root": _square_root,
    "calculate-and-note": _calculate_and_note,
    "close-windows": _close_windows,
    "change-cell": _change_cell,
    "save-as-csv": _save_as_csv,
    "sum-column": _sum_column,
}
