"""The environment `browser`: a fresh headless Chromium for one attempt.

It is driven over pipes, keeps everything it writes inside one folder, reaches no network, and ends with the process
that started it: Chromium leaves when its pipe closes, and lies in that process's tree for whoever kills it.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from evalfleet import config
from evalfleet.environments import keys
from evalfleet.environments.base import Size
from evalfleet.environments.cdp import Connection
from evalfleet.errors import BrowserError, BrowserGone, BrowserRefused

NAMES = ("chromium", "chromium-browser", "google-chrome")
INSTALL = "apt-get install -y --no-install-recommends chromium"

_FLAGS = (
    "--headless",
    "--remote-debugging-pipe",
    "--no-startup-window",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-background-networking",
    "--disable-background-timer-throttling",
    "--disable-breakpad",
    "--disable-component-update",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    "--disable-gpu",
    "--disable-quic",
    "--disable-renderer-backgrounding",
    "--disable-smooth-scrolling",
    "--disable-sync",
    "--force-color-profile=srgb",
    "--hide-scrollbars",
    "--host-resolver-rules=MAP * ~NOTFOUND",
    "--lang=en-US",
    "--mute-audio",
    "--password-store=basic",
)
_START_S = 60.0
_PRESS_LIMIT = 1000
_DRAG_MOVES = 5
_LONGEST_TEMPORARY = 60


def find_chromium(configured: str | None = None) -> str | None:
    """Return the path of a Chromium: the configured one, which must be there, else the first that PATH has."""
    return shutil.which(configured) if configured else next(filter(None, map(shutil.which, NAMES)), None)


@contextmanager
def launched(executable: str, folder: Path, size: Size) -> Generator[Browser]:
    """Start a browser with one blank page of that size, and end it.

    Args:
        executable: as `find_chromium` gives it.
        folder: a private one; what the browser writes goes there, and is removed at the end.

    Raises:
        BrowserError: it could not be started; holds its own last words.
    """
    place = folder / "browser"
    place.mkdir(parents=True)
    temporary = _short_folder(place)
    pid, connection = _spawn(executable, place, temporary)
    try:
        try:
            browser = Browser(connection, size)
        except BrowserError as error:
            said = _last_words(place / "chromium.log")
            raise type(error)(f"{executable} did not start: {error}{f' ({said})' if said else ''}") from None
        yield browser
    finally:
        connection.close()
        _end(pid)
        for each in (temporary, place):
            _remove(each)


class Browser:
    """One page of a running browser. Every method has a time limit and raises BrowserError."""

    def __init__(self, connection: Connection, size: Size) -> None:
        self._connection = connection
        self._loaded = False
        target = connection.call("Target.createTarget", {"url": "about:blank"}, timeout_s=_START_S)["targetId"]
        attached = connection.call("Target.attachToTarget", {"targetId": target, "flatten": True})
        self._session: str = attached["sessionId"]
        connection.on("Page.loadEventFired", self._note_load)
        connection.on("Page.javascriptDialogOpening", self._accept_dialog)
        connection.on("Inspector.targetCrashed", _crashed)
        self._call("Page.enable")
        self._call("Inspector.enable")
        self._call("Emulation.setFocusEmulationEnabled", {"enabled": True})
        self._call("Emulation.setLocaleOverride", {"locale": "en-US"})
        self._call("Emulation.setTimezoneOverride", {"timezoneId": "UTC"})
        metrics = {"width": size.width, "height": size.height, "deviceScaleFactor": 1, "mobile": False}
        self._call("Emulation.setDeviceMetricsOverride", metrics)

    def open(self, url: str, *, timeout_s: float = 60.0) -> None:
        """Go to an address and wait until the page has loaded."""
        self._loaded = False
        answer = self._call("Page.navigate", {"url": url}, timeout_s=timeout_s)
        if answer.get("errorText"):
            raise BrowserRefused(f"{url}: {answer['errorText']}")
        self._connection.wait(lambda: self._loaded, f"{url} to load", timeout_s=timeout_s)

    def evaluate(self, expression: str, *, timeout_s: float = 30.0) -> Any:
        """Return the value of a JavaScript expression; a promise is awaited."""
        params = {"expression": expression, "returnByValue": True, "awaitPromise": True, "userGesture": False}
        answer = self._call("Runtime.evaluate", params, timeout_s=timeout_s)
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            said = details.get("exception", {}).get("description") or details.get("text", "")
            raise BrowserRefused(f"JavaScript failed: {said.splitlines()[0] if said else 'without a word'}")
        return answer["result"].get("value")

    def screenshot(self, size: Size) -> bytes:
        """Return the page's upper left part of that size, as PNG."""
        clip = {"x": 0, "y": 0, "width": size.width, "height": size.height, "scale": 1}
        answer = self._call("Page.captureScreenshot", {"format": "png", "clip": clip, "optimizeForSpeed": True})
        return base64.b64decode(answer["data"])

    def move(self, x: float, y: float) -> None:
        self._mouse("mouseMoved", x, y)

    def click(self, x: float, y: float, *, count: int = 1, held: tuple[str, ...] = ()) -> None:
        """Move there and click; `count` 2 is a double click."""
        bits = keys.modifiers(held)
        self._mouse("mouseMoved", x, y, modifiers=bits)
        for number in range(1, count + 1):
            pressed = {"button": "left", "clickCount": number, "modifiers": bits}
            self._mouse("mousePressed", x, y, buttons=1, **pressed)
            self._mouse("mouseReleased", x, y, **pressed)

    def drag(self, x: float, y: float, to_x: float, to_y: float) -> None:
        self._mouse("mouseMoved", x, y)
        self._mouse("mousePressed", x, y, button="left", buttons=1, clickCount=1)
        for part in range(1, _DRAG_MOVES + 1):
            share = part / _DRAG_MOVES
            self._mouse("mouseMoved", x + (to_x - x) * share, y + (to_y - y) * share, button="left", buttons=1)
        self._mouse("mouseReleased", to_x, to_y, button="left", clickCount=1)

    def scroll(self, x: float, y: float, dx: float, dy: float) -> None:
        self._mouse("mouseWheel", x, y, deltaX=dx, deltaY=dy)

    def press(self, key: str, *, held: tuple[str, ...] = (), times: int = 1) -> None:
        """Press and release a key, by a name such as "Enter" or as one character."""
        for _ in range(min(times, _PRESS_LIMIT)):
            for event in keys.events(key, held):
                self._call("Input.dispatchKeyEvent", event)

    def write(self, text: str) -> None:
        """Type a text, key by key."""
        for character in text:
            self.press({"\n": "Enter", "\t": "Tab"}.get(character, character))

    def _mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        self._call("Input.dispatchMouseEvent", {"type": kind, "x": x, "y": y, **more})

    def _call(
        self, method: str, params: dict[str, Any] | None = None, timeout_s: float | None = None
    ) -> dict[str, Any]:
        return self._connection.call(method, params, session=self._session, timeout_s=timeout_s)

    def _note_load(self, _params: dict[str, Any]) -> None:
        self._loaded = True

    def _accept_dialog(self, _params: dict[str, Any]) -> None:
        # An open dialog stops the page, and with it every answer that we wait for.
        self._connection.post("Page.handleJavaScriptDialog", {"accept": True}, session=self._session)


def _crashed(_params: dict[str, Any]) -> None:
    raise BrowserGone("the page crashed")


def _spawn(executable: str, place: Path, temporary: Path) -> tuple[int, Connection]:
    """Start Chromium in a process group of its own, with its pipes at descriptors 3 and 4."""
    theirs_in, ours_out = os.pipe()
    ours_in, theirs_out = os.pipe()
    # Above 9, so that giving one its place cannot overwrite the other.
    ends = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 10) for fd in (theirs_in, theirs_out)]
    inherited = config.environment()
    env = {name: inherited[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in inherited}
    # The marks by which the runner knows an attempt's processes, should they outlive everybody else.
    env |= {name: value for name, value in inherited.items() if name.startswith("EVALFLEET_")}
    env |= {"HOME": str(place), "TMPDIR": str(temporary), "TZ": "UTC"}
    env |= {"LANG": "en_US.UTF-8", "LANGUAGE": "en_US"}
    argv = [executable, *_FLAGS, f"--user-data-dir={place / 'profile'}"]
    if os.geteuid() == 0:
        argv.append("--no-sandbox")  # Chromium refuses its own sandbox to root
    log = str(place / "chromium.log")
    try:
        pid = os.posix_spawn(
            executable,
            argv,
            env,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
                (os.POSIX_SPAWN_DUP2, 1, 2),
                (os.POSIX_SPAWN_DUP2, ends[0], 3),
                (os.POSIX_SPAWN_DUP2, ends[1], 4),
            ],
            setpgroup=0,
        )
    except OSError as error:
        os.close(ours_in)
        os.close(ours_out)
        raise BrowserGone(f"{executable} cannot be started: {error.strerror}") from None
    finally:
        for fd in (theirs_in, theirs_out, *ends):
            os.close(fd)
    return pid, Connection(ours_in, ours_out)


def _short_folder(place: Path) -> Path:
    """Make a folder for temporary files. Chromium puts a socket there, and the path of one has 107 bytes at most."""
    inside = place / "tmp"
    if len(os.fsencode(inside)) <= _LONGEST_TEMPORARY:
        inside.mkdir()
        return inside
    return Path(tempfile.mkdtemp(prefix="evalfleet-"))


def _last_words(log: Path) -> str:
    """Return the line of the log that tells why it ended, or nothing."""
    try:
        lines = [line.strip() for line in log.read_text("utf-8", "replace").splitlines() if line.strip()]
    except OSError:
        return ""
    return next((line for line in lines if "FATAL" in line), lines[-1] if lines else "")[:300]


def _end(pid: int) -> None:
    """Kill the browser's process group: its profile is thrown away, so there is nothing for it to save."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, 0)


def _remove(place: Path, deadline_s: float = 2.0) -> None:
    deadline = time.monotonic() + deadline_s
    while place.exists() and time.monotonic() < deadline:
        shutil.rmtree(place, ignore_errors=True)  # a dying child may still write into it
