"""The environment `desktop`: a fresh X desktop with a window manager and real applications, for one attempt.

Xvfb, its own D-Bus and openbox, started by `desktop.init`, in a bubblewrap sandbox if the machine allows one.
It has no network, and ends with the process that started it, however that ends.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TypeVar

from evalfleet.actions import Action
from evalfleet.environments.base import Executed, Probe, Requirement, Size
from evalfleet.environments.desktop.idle import any_process_busy, wait_for_rest
from evalfleet.environments.desktop.sandbox import Mode
from evalfleet.environments.desktop.session import Session
from evalfleet.environments.desktop.vnc_server import VncServer
from evalfleet.environments.desktop.x11.input import XInput
from evalfleet.environments.desktop.x11.windows import Window, XWindows
from evalfleet.environments.picture import png
from evalfleet.errors import DesktopError

SCREEN = Size(width=1280, height=800)
PROGRAMS = {  # what a desktop cannot do without -> Debian's package
    "Xvfb": "xvfb",
    "openbox": "openbox",
    "dbus-daemon": "dbus-x11",
    "xkbcomp": "x11-xkb-utils",
}
_START_S = 60.0
_ASK_AGAIN_S = 0.05
_PROBE_S = 1.0
_DEATH_S = 0.5  # at most, between the end of a connection and that of the server
_REST_S = 0.03  # without a change on the screen
_Result = TypeVar("_Result")


def requirements(programs: Mapping[str, str] = PROGRAMS) -> list[Requirement]:
    """Return what a machine must have, found or not.

    Args:
        programs: the required ones, each with its Debian package.
    """
    found = {name: shutil.which(name) for name in programs}
    return [
        Requirement(
            what=name,
            present=path is not None,
            found=path or "not on PATH",
            install=f"apt-get install -y --no-install-recommends {programs[name]}",
        )
        for name, path in found.items()
    ]


@contextmanager
def launched(
    folder: Path,
    *,
    size: Size = SCREEN,
    mode: Mode = Mode.AUTO,
    env: Mapping[str, str] | None = None,
    timeout_s: float = _START_S,
    view: Path | None = None,
    home: Path | None = None,
) -> Generator[Desktop]:
    """Start a desktop, and end it.

    Args:
        folder: a private one; a desktop without sandbox keeps its files there, and they are removed at the end.
        mode: whether it is sandboxed.
        env: variables for all programs inside.
        timeout_s: for all parts to come up.
        view: path of a VNC socket, to watch and use it; None: no socket.
        home: of a desktop without sandbox, where it is to stay; None: a new one, which is removed at the end.

    Raises:
        EnvironmentFailed: it could not be started; names the part and its last output.
    """
    desktop = Desktop(folder, size=size, mode=mode, env=env or {}, timeout_s=timeout_s, home=home)
    try:
        if view is not None:
            desktop.let_view(view)
        yield desktop
    finally:
        desktop.close()


class Desktop:
    """Implements `Environment`. Must be closed; `launched` does that."""

    def __init__(
        self,
        folder: Path,
        *,
        size: Size,
        mode: Mode,
        env: Mapping[str, str],
        timeout_s: float,
        home: Path | None = None,
    ) -> None:
        self._folder, self._size, self._mode, self._env, self._timeout_s = folder, size, mode, dict(env), timeout_s
        self._home = home
        self._viewing: VncServer | None = None
        self._start()

    def let_view(self, path: Path) -> None:
        """Serve VNC on a socket with this path until it is closed."""
        self._viewing = VncServer(path, self._size)
        self._viewing.use(self._session.connect())

    @property
    def sandboxed(self) -> bool:
        return self._session.sandboxed

    @property
    def pid(self) -> int:
        """The process that is the ancestor of all processes of the desktop."""
        return self._session.pid

    def probe(self) -> Probe:
        try:
            dead = self._session.deaths()
            up = not dead and self._windows.manager_answers(timeout_s=_PROBE_S)
            waits_for = "" if up else dead[0] if dead else "the window manager"
        except DesktopError as error:
            waits_for = str(error)
        return Probe(kind="desktop", ready=not waits_for, waits_for=waits_for, screen=self._size)

    def screenshot(self) -> bytes:
        return png(self._asked(lambda: self._connection.image(self._size)), self._size)

    def perform(self, action: Action) -> None:
        self._asked(lambda: self._input.perform(action))

    def execute(
        self,
        command: Sequence[str],
        *,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        timeout_s: float = 60.0,
    ) -> Executed:
        return self._session.execute(command, stdin, env or {}, timeout_s)

    def launch(self, command: Sequence[str]) -> None:
        self._session.launch(command)

    def read(self, path: str) -> bytes:
        return self._session.read(path)

    def write(self, path: str, data: bytes) -> None:
        self._session.write(path, data)

    def reset(self) -> None:
        """Discard the desktop and start a new one. Viewers then see the new one."""
        self._end()
        self._start()
        if self._viewing is not None:
            self._viewing.use(self._session.connect())

    def windows(self) -> list[Window]:
        """Return the windows of applications, the topmost last."""
        return self._asked(self._windows.all)

    def wait_for_windows(
        self, condition: Callable[[list[Window]], bool], what: str, *, timeout_s: float = 60.0
    ) -> list[Window]:
        """Wait until the windows fulfil a condition, and return them.

        Raises:
            DesktopError: they did not in time; says what was waited for and which windows exist.
        """
        return self._asked(lambda: self._windows.wait(condition, what, timeout_s=timeout_s))

    def rest(self, *, limit_s: float) -> None:
        """Wait until the applications have handled what was done, but no longer than the limit."""
        self.settle(limit_s=limit_s / 10)
        wait_for_rest(lambda: any_process_busy(self.pid), limit_s)

    def close_windows(self) -> None:
        """End every application that has a window. Files and settings stay as they are."""
        self._asked(self._windows.close_all)

    def settle(self, *, limit_s: float = 1.0) -> None:
        """Wait until the active application has caught up and the screen no longer changes, at most for the limit."""
        deadline = time.monotonic() + limit_s
        self._asked(lambda: self._windows.catch_up(timeout_s=limit_s))
        before = self._asked(lambda: self._connection.image(self._size))
        while time.monotonic() < deadline:
            time.sleep(_REST_S)
            now = self._asked(lambda: self._connection.image(self._size))
            if now == before:
                return
            before = now

    def close(self) -> None:
        """End it. May be called twice."""
        if self._viewing is not None:
            self._viewing.close()
            self._viewing = None
        self._end()

    def _end(self) -> None:
        self._connection.close()
        self._session.close()

    def _start(self) -> None:
        deadline = time.monotonic() + self._timeout_s
        with ExitStack() as undo:
            self._session = Session(
                self._folder, self._size, self._mode, env=self._env, timeout_s=self._timeout_s, home=self._home
            )
            undo.callback(self._session.close)
            self._connection = self._session.connect()
            undo.callback(self._connection.close)
            self._windows = XWindows(self._connection)
            self._await_manager(deadline)
            self._input = XInput(self._connection, self._windows)
            undo.pop_all()

    def _await_manager(self, deadline: float) -> None:
        # While it starts it may miss a request, so the request is repeated.
        while not self._windows.manager_answers(timeout_s=_ASK_AGAIN_S):
            dead = self._session.deaths()
            if dead:
                raise DesktopError(dead[0])
            if time.monotonic() > deadline:
                raise DesktopError(f"the window manager did not come up within {self._timeout_s:g} s")

    def _asked(self, ask: Callable[[], _Result]) -> _Result:
        """Return the X server's answer; if it fails, raise with the part that is dead."""
        try:
            return ask()
        except DesktopError as error:
            dead = self._session.deaths(patience_s=_DEATH_S)
            raise DesktopError(dead[0] if dead else str(error)) from None
