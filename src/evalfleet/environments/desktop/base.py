"""The interface of desktops with windows: on this machine, or inside a guest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from evalfleet.environments.base import Environment
from evalfleet.environments.desktop.x11.windows import Window


class WindowedDesktop(Environment, Protocol):
    """An environment that knows its windows, and when its applications are idle."""

    def windows(self) -> list[Window]:
        """Return the windows of applications, the topmost last."""
        ...

    def wait_for_windows(
        self, condition: Callable[[list[Window]], bool], what: str, *, timeout_s: float = 60.0
    ) -> list[Window]:
        """Wait until the windows fulfil a condition, and return them. Raises EnvironmentFailed if they do not in time."""
        ...

    def rest(self, *, limit_s: float) -> None:
        """Wait until the applications have handled what was done, but no longer than the limit."""
        ...

    def close_windows(self) -> None:
        """End every application that has a window. Files and settings stay as they are."""
        ...
