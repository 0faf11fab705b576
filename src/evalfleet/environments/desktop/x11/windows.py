"""The windows of an X desktop, as its window manager reports them, and whether an application has caught up."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable

from msgspec import Struct

from evalfleet.environments.desktop.x11.protocol import (
    CLIENT_MESSAGE,
    PROPERTY_CHANGE,
    PROPERTY_NOTIFY,
    SUBSTRUCTURE_NOTIFY,
    SUBSTRUCTURE_REDIRECT,
    XConnection,
)
from evalfleet.errors import DesktopError, DesktopRefused

_KILL_CLIENT = 113


class Window(Struct, frozen=True, kw_only=True):
    """An application's window. Its place is that of its content, in pixels of the screen."""

    id: int
    title: str
    kind: str  # of the application, such as "Mousepad"
    x: int
    y: int
    width: int
    height: int
    active: bool  # whether it gets the keys


class XWindows:
    """Reads what the window manager writes on the screen's root. One per connection; used by one thread."""

    def __init__(self, connection: XConnection) -> None:
        self._connection = connection
        connection.select_input(connection.root, PROPERTY_CHANGE | SUBSTRUCTURE_NOTIFY)
        self._own = connection.make_window(PROPERTY_CHANGE)

    def all(self) -> list[Window]:
        """Return the windows of applications, the topmost last."""
        found = self._connection.property(self._connection.root, "_NET_CLIENT_LIST_STACKING")
        active = self._active()
        windows: list[Window] = []
        for number in found.numbers() if found else ():
            with contextlib.suppress(DesktopRefused):  # gone meanwhile
                windows.append(self._window(number, active=number == active))
        return windows

    def wait(self, condition: Callable[[list[Window]], bool], what: str, *, timeout_s: float) -> list[Window]:
        """Wait for windows that fulfil a condition, and return all of them. Raises DesktopError if they do not in time."""
        windows: list[Window] = []
        watched: set[int] = set()

        def look(_events: list[bytes]) -> bool:
            windows[:] = self.all()
            # A title changes on the window itself: that is wanted as well, and may have happened just now.
            while fresh := {window.id for window in windows} - watched:
                for each in fresh:
                    self._connection.select_input(each, PROPERTY_CHANGE)
                watched.update(fresh)
                windows[:] = self.all()
            return condition(windows)

        if not self._connection.holds(look, timeout_s=timeout_s):
            there = ", ".join(repr(window.title) for window in windows) or "none"
            raise DesktopError(f"waited {timeout_s:g} s for {what}; the windows there are: {there}")
        return windows

    def close_all(self, *, timeout_s: float = 10.0) -> None:
        """End every application that has a window, whether it likes it or not. Raises DesktopError if some stay."""

        def none_is_left(_events: list[bytes]) -> bool:
            windows = self.all()
            for window in windows:
                self._connection.tell(_KILL_CLIENT, body=struct.pack("<I", window.id))
            return not windows

        if not self._connection.holds(none_is_left, timeout_s=timeout_s):
            raise DesktopError(f"windows are still open {timeout_s:g} s after their applications were ended")

    def manager_answers(self, *, timeout_s: float) -> bool:
        """Whether there is a window manager and it handles, in this time, all earlier events.

        It is sent a request, which it answers after them.
        """
        extents = self._connection.atom("_NET_FRAME_EXTENTS")
        mask = SUBSTRUCTURE_REDIRECT | SUBSTRUCTURE_NOTIFY
        self._connection.send_message(self._connection.root, self._own, "_NET_REQUEST_FRAME_EXTENTS", (), mask)

        def answered(events: list[bytes]) -> bool:
            return any(
                event[0] == PROPERTY_NOTIFY and struct.unpack_from("<II", event, 4) == (self._own, extents)
                for event in events
            )

        return self._connection.holds(answered, timeout_s=timeout_s)

    def catch_up(self, *, timeout_s: float = 5.0) -> None:
        """Return when the active window's application has handled all earlier events.

        It is sent a ping, which it answers after them. One that cannot be pinged is not waited for.
        """
        active = self._active()
        protocols = self._protocols(active) if active else ()
        ping = self._connection.atom("_NET_WM_PING")
        if ping not in protocols:
            return
        self._connection.send_message(active, active, "WM_PROTOCOLS", (ping, 0, active))

        def answered(events: list[bytes]) -> bool:
            return any(
                event[0] & 0x7F == CLIENT_MESSAGE and struct.unpack_from("<I", event, 12)[0] == ping for event in events
            )

        self._connection.holds(answered, timeout_s=timeout_s)  # where it is too busy, what it missed shows

    def _protocols(self, window: int) -> tuple[int, ...]:
        with contextlib.suppress(DesktopRefused):
            found = self._connection.property(window, "WM_PROTOCOLS")
            return found.numbers() if found else ()
        return ()

    def _active(self) -> int:
        found = self._connection.property(self._connection.root, "_NET_ACTIVE_WINDOW")
        return found.numbers()[0] if found and found.numbers() else 0

    def _window(self, number: int, *, active: bool) -> Window:
        title = self._connection.property(number, "_NET_WM_NAME") or self._connection.property(number, "WM_NAME")
        kind = self._connection.property(number, "WM_CLASS")
        x, y, width, height = self._connection.place(number)
        return Window(
            id=number,
            title=title.value.decode("utf-8", "replace") if title else "",
            kind=kind.value.rstrip(b"\0").split(b"\0")[-1].decode("utf-8", "replace") if kind else "",
            x=x,
            y=y,
            width=width,
            height=height,
            active=active,
        )
