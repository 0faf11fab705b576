"""Getters: each fetches one piece of state from the environment for the checker of a task.

Each is named in a task file as the `type` of `result`; its members stand beside it. A getter returns None for a state
that is not there or cannot be read: that is the agent's doing. Only a broken environment raises.
"""

from __future__ import annotations

import configparser
import posixpath
from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from evalfleet.benchmarks.desk import sheets
from evalfleet.benchmarks.desk.paths import require_path
from evalfleet.environments.base import Environment
from evalfleet.environments.desktop.base import WindowedDesktop
from evalfleet.errors import InputError

_EXECUTE_S = 30.0
_CLIPBOARD_S = 10.0


class Getter(Protocol):
    def get(self, desktop: WindowedDesktop) -> Any:
        """Return text, a number, a list, or None."""
        ...


class _AtPath(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    path: str

    def __post_init__(self) -> None:
        require_path(self.path)


class FileText(_AtPath, frozen=True):
    def get(self, desktop: WindowedDesktop) -> str | None:
        data = _content(desktop, self.path)
        try:
            return None if data is None else data.decode("utf-8")
        except UnicodeDecodeError:
            return None


class FolderList(_AtPath, frozen=True):
    """The names in a folder, sorted; folders end with a slash, hidden ones are left out."""

    def get(self, desktop: WindowedDesktop) -> list[str] | None:
        # One name per line would be ambiguous for a name with a line break in it; a NUL is not.
        done = desktop.execute(
            ["find", f"./{self.path}", "-mindepth", "1", "-maxdepth", "1", "-printf", r"%f%y\0"], timeout_s=_EXECUTE_S
        )
        if done.code != 0:
            return None
        rows = done.stdout.decode("utf-8", "replace").split("\0")[:-1]
        return sorted(f"{row[:-1]}/" if row[-1] == "d" else row[:-1] for row in rows if not row.startswith("."))


class IniValue(_AtPath, frozen=True):
    """One value of a settings file with [sections], as it is written there."""

    section: str
    key: str

    def get(self, desktop: WindowedDesktop) -> str | None:
        data = _content(desktop, self.path)
        if data is None:
            return None
        # Strict parsers stumble over what applications write: keys twice, keys without a value.
        parser = configparser.RawConfigParser(strict=False, allow_no_value=True, delimiters=("=",))
        parser.optionxform = str  # type: ignore[assignment, method-assign]
        try:
            parser.read_string(data.decode("utf-8", "replace"))
        except configparser.Error:
            return None
        return parser.get(self.section, self.key, fallback=None)


class _AtCells(_AtPath, frozen=True):
    cells: str  # "B2" or "A1:C3"
    sheet: int = 1

    def __post_init__(self) -> None:
        require_path(self.path)
        if posixpath.splitext(self.path)[1] not in sheets.SUFFIXES:
            raise ValueError(f"path: must end with one of {', '.join(sheets.SUFFIXES)}")
        try:
            sheets.area(self.cells)
        except ValueError as error:
            raise ValueError(f'cells: {error}; write "B2" or "A1:C3"') from None
        if self.sheet < 1:
            raise ValueError("sheet: must be 1 or more")

    def _found(self, desktop: WindowedDesktop, member: Callable[[sheets.Cell], sheets.Value]) -> Any:
        """Return that member of one cell, or of each cell in a list of rows."""
        data = _content(desktop, self.path)
        if data is None:
            return None
        try:
            rows = sheets.read(data, posixpath.splitext(self.path)[1], self.sheet, sheets.area(self.cells))
        except sheets.Unreadable:
            return None
        found = [[member(cell) for cell in row] for row in rows]
        return found if ":" in self.cells else found[0][0]


class CellValues(_AtCells, frozen=True):
    """Values of cells of a .csv, .ods or .xlsx file: of one cell, or a list of rows. Empty cells are "" ."""

    def get(self, desktop: WindowedDesktop) -> Any:
        return self._found(desktop, lambda cell: cell.value)


class CellFormulas(_AtCells, frozen=True):
    """Formulas of cells, as the file writes them; "" for a cell without one."""

    def get(self, desktop: WindowedDesktop) -> Any:
        return self._found(desktop, lambda cell: cell.formula)


class Clipboard(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    def get(self, desktop: WindowedDesktop) -> str | None:
        return clipboard(desktop)


class WindowTitles(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The titles of the open windows, sorted."""

    def get(self, desktop: WindowedDesktop) -> list[str]:
        return sorted(window.title for window in desktop.windows())


class CommandOutput(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a command prints, without the final newline; None if it fails. Starts in the home folder."""

    command: list[str]

    def __post_init__(self) -> None:
        if not self.command:
            raise ValueError("command: is empty")

    def get(self, desktop: WindowedDesktop) -> str | None:
        done = desktop.execute(self.command, timeout_s=_EXECUTE_S)
        return done.stdout.decode("utf-8", "replace").rstrip("\n") if done.code == 0 else None


GETTERS: dict[str, type[Getter]] = {
    "file_text": FileText,
    "folder_list": FolderList,
    "ini_value": IniValue,
    "cell_values": CellValues,
    "cell_formulas": CellFormulas,
    "clipboard": Clipboard,
    "window_titles": WindowTitles,
    "command_output": CommandOutput,
}


def clipboard(desktop: Environment) -> str | None:
    """Return the text on the clipboard, None where there is none."""
    # Whoever offers the text must hand it over; one that hangs offers none.
    done = desktop.execute(["xclip", "-o", "-selection", "clipboard"], timeout_s=_CLIPBOARD_S)
    return done.stdout.decode("utf-8", "replace") if done.code == 0 else None


def _content(desktop: Environment, path: str) -> bytes | None:
    try:
        return desktop.read(path)
    except InputError:
        return None
