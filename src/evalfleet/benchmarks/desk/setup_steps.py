"""How a task prepares the desktop before the agent sees it. Each step is named in a task file as `type` in `config`."""

from __future__ import annotations

from typing import Protocol

import msgspec

from evalfleet.benchmarks.desk import sheets
from evalfleet.benchmarks.desk.paths import require_path
from evalfleet.environments.desktop.base import WindowedDesktop
from evalfleet.environments.desktop.x11.windows import Window
from evalfleet.errors import EnvironmentFailed

LONGEST_START_S = 120.0  # LibreOffice on a busy machine; an application that needs longer is broken
_EXECUTE_S = 60.0


class Setup(Protocol):
    def apply(self, desktop: WindowedDesktop) -> None:
        """Do it, and return when it is done. Raises EnvironmentFailed."""
        ...


class WriteFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Write a text file, with the folders above it."""

    path: str
    text: str

    def __post_init__(self) -> None:
        require_path(self.path)

    def apply(self, desktop: WindowedDesktop) -> None:
        desktop.write(self.path, self.text.encode())


class WriteSheet(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Write an .ods spreadsheet with one sheet."""

    path: str
    rows: list[list[str | float]]

    def __post_init__(self) -> None:
        require_path(self.path)
        if not self.path.endswith(".ods"):
            raise ValueError("path: must end with .ods")

    def apply(self, desktop: WindowedDesktop) -> None:
        desktop.write(self.path, sheets.write_ods(self.rows))


class CreateFolder(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Make a folder, with those above it."""

    path: str

    def __post_init__(self) -> None:
        require_path(self.path)

    def apply(self, desktop: WindowedDesktop) -> None:
        _run(desktop, ["mkdir", "-p", self.path])


class Launch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Start a program, and wait until a window with `window` in its title is there and has the focus."""

    command: list[str]
    window: str

    def __post_init__(self) -> None:
        if not self.command:
            raise ValueError("command: is empty")
        if not self.window:
            raise ValueError("window: is empty; write a part of the window's title")

    def apply(self, desktop: WindowedDesktop) -> None:
        desktop.launch(self.command)
        what = f"{self.command[0]} to show an active window {self.window!r}"
        desktop.wait_for_windows(self._is_there, what, timeout_s=LONGEST_START_S)

    def _is_there(self, windows: list[Window]) -> bool:
        return any(window.active and self.window in window.title for window in windows)


class Execute(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Run a program in the home folder and wait for it; it must exit with status 0."""

    command: list[str]

    def __post_init__(self) -> None:
        if not self.command:
            raise ValueError("command: is empty")

    def apply(self, desktop: WindowedDesktop) -> None:
        _run(desktop, self.command)


SETUPS: dict[str, type[Setup]] = {
    "write_file": WriteFile,
    "write_sheet": WriteSheet,
    "create_folder": CreateFolder,
    "launch": Launch,
    "execute": Execute,
}


def _run(desktop: WindowedDesktop, command: list[str]) -> None:
    done = desktop.execute(command, timeout_s=_EXECUTE_S)
    if done.code != 0:
        said = done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
        raise EnvironmentFailed(f"{command[0]} ended with {done.code} while the task was set up: {said}")
