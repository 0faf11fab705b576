"""Solutions for the tasks of `desk` in the file manager PCManFM and in a terminal."""

from __future__ import annotations

from evalfleet.agents.base import Press, Write
from evalfleet.agents.solutions.screen import ENTER, ESCAPE, Screen, Script, Steps, alt, control


def _select(name: str) -> Steps:
    """Find a file or folder in the shown one by typing its name."""
    yield [Write(text=name)]
    yield [ESCAPE]  # closes the little field that the name is typed into; the file stays selected


def _named(screen: Screen, dialog: str, name: str) -> Steps:
    """Answer a dialog that asks for a name."""
    yield from screen.active(dialog)
    yield [control("a"), Write(text=name)]
    yield [ENTER]
    yield from screen.gone(dialog)


def _rename_file(screen: Screen) -> Steps:
    yield from _select(screen.quoted(1))
    yield [Press(key="F2")]
    yield from _named(screen, "Rename", screen.quoted(2))


def _new_folder(screen: Screen) -> Steps:
    yield [control("n", "Shift")]
    yield from _named(screen, "Creating", screen.quoted(1))


def _into(screen: Screen, folder: str) -> Steps:
    yield from _select(folder)
    yield [ENTER]
    yield from screen.active(folder)


def _move_file(screen: Screen) -> Steps:
    yield from _select(screen.quoted(1))
    yield [control("x")]
    yield from _into(screen, screen.quoted(2))
    yield [control("v")]


def _copy_file(screen: Screen) -> Steps:
    yield from _select(screen.quoted(1))
    yield [control("c")]
    yield from _into(screen, screen.quoted(2))
    yield [control("v")]


def _trash_file(screen: Screen) -> Steps:
    yield from _select(screen.quoted(1))
    yield [Press(key="Delete")]
    yield from screen.active("Confirm")
    yield [ENTER]
    yield from screen.gone("Confirm")


def _close(screen: Screen) -> Steps:
    yield [alt("F4")]
    yield from screen.until(lambda: not screen.windows, "the window to close")


def _show_hidden(screen: Screen) -> Steps:
    yield [control("h")]
    yield from _close(screen)


def _typed(command: str) -> Script:
    """Type a command into a terminal, and leave it: the shell closes the window when the command is through."""

    def script(screen: Screen) -> Steps:
        yield [Write(text=command), ENTER]
        yield [Write(text="exit"), ENTER]
        yield from screen.gone("Terminal")

    return script


SCRIPTS: dict[str, Script] = {
    "copy-file": _copy_file,
    "move-file": _move_file,
    "new-folder": _new_folder,
    "rename-file": _rename_file,
    "show-hidden": _show_hidden,
    "trash-file": _trash_file,
    "count-lines": _typed("grep -c '404$' access.log > count.txt"),
    "make-executable": _typed("chmod 755 hello.sh"),
    "make-folders": _typed("mkdir -p Projects/alpha/src Projects/beta/src"),
    "sort-names": _typed("sort -u names.txt > sorted.txt"),
}
