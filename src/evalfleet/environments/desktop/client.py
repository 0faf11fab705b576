"""A desktop behind the guest protocol, with the requests that `desktop.guest_agent` adds to it."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from evalfleet.environments.desktop.x11.windows import Window
from evalfleet.environments.guest.client import GuestClient
from evalfleet.errors import EnvironmentFailed

_LOOK_AGAIN_S = 0.1


class DesktopClient(GuestClient):
    """Implements `WindowedDesktop`."""

    def windows(self) -> list[Window]:
        try:
            return msgspec.json.decode(self._ask("GET", "/windows"), type=list[Window])
        except msgspec.DecodeError:
            raise EnvironmentFailed("the guest's answer to /windows is not a list of windows") from None

    def wait_for_windows(
        self, condition: Callable[[list[Window]], bool], what: str, *, timeout_s: float = 60.0
    ) -> list[Window]:
        deadline = time.monotonic() + timeout_s
        asked = time.monotonic()
        while not condition(windows := self.windows()):
            now = time.monotonic()
            if now > deadline:
                there = ", ".join(repr(window.title) for window in windows) or "none"
                raise EnvironmentFailed(f"waited {timeout_s:g} s for {what}; the windows there are: {there}")
            # A slow guest needs its processor for the windows that are awaited, not for questions.
            time.sleep(max(_LOOK_AGAIN_S, 4 * (now - asked)))
            asked = time.monotonic()
        return windows

    def rest(self, *, limit_s: float) -> None:
        self._json("POST", "/rest", {"limit_s": limit_s}, more_s=limit_s)

    def close_windows(self) -> None:
        self._json("POST", "/setup/close_windows", {})
