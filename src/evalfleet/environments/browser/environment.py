"""The environment `browser`: a fresh headless Chromium for one attempt.

It is driven over pipes, keeps everything it writes inside one folder, reaches no network, and ends with the process
that started it: Chromium leaves when its pipe closes, and is part of that process's tree, so killing the tree ends it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from evalfleet import config
from evalfleet.actions import Action
from evalfleet.environments.base import LARGEST_FILE, LARGEST_OUTPUT, Executed, Probe, Size
from evalfleet.environments.browser.cdp import Connection
from evalfleet.environments.browser.page import Page
from evalfleet.errors import BrowserError, BrowserGone, BrowserRefused, BrowserTimeout, InputError, ScriptFailed

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
    "--disable-crash-reporter",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    # One page needs no second renderer, and no separate processes for a GPU and the network, which it does not have: every
    # attempt would pay for their start.
    "--disable-features=SpareRendererForSitePerProcess",
    "--disable-gpu",
    "--disable-quic",
    "--disable-renderer-backgrounding",
    "--disable-smooth-scrolling",
    "--disable-software-rasterizer",
    "--disable-sync",
    "--enable-features=NetworkServiceInProcess2",
    "--force-color-profile=srgb",
    "--hide-scrollbars",
    "--host-resolver-rules=MAP * ~NOTFOUND",
    "--in-process-gpu",
    "--lang=en-US",
    "--mute-audio",
    "--password-store=basic",
)
_PROBE_S = 5.0
_LONGEST_TEMPORARY = 60


def find_chromium(configured: str | None = None) -> str | None:
    """Return the path of a Chromium: the configured one, which must exist, else the first one on PATH."""
    return shutil.which(configured) if configured else next(filter(None, map(shutil.which, NAMES)), None)


@contextmanager
def launched(executable: str, folder: Path, size: Size) -> Generator[Browser]:
    """Start a browser with one blank page of that size, and end it.

    Args:
        executable: as `find_chromium` gives it.
        folder: a private one for the browser's files, which are removed at the end.

    Raises:
        BrowserError: it could not be started; contains its last output.
    """
    browser = Browser(executable, folder, size)
    try:
        yield browser
    finally:
        browser.close()


class Browser:
    """Implements `Environment`, with one page. Must be closed; `launched` does that.

    Its files are in a folder beside the browser's own: only files that were written, and pages may show them.
    """

    def __init__(self, executable: str, folder: Path, size: Size) -> None:
        self._executable, self._place, self._size = executable, folder / "browser", size
        self._home = self._place / "home"
        self._start()

    def probe(self) -> Probe:
        try:
            self.page.evaluate("1", timeout_s=_PROBE_S)
            waits_for = ""
        except BrowserError as error:
            waits_for = str(error)
        return Probe(kind="browser", ready=not waits_for, waits_for=waits_for, screen=self._size)

    def screenshot(self) -> bytes:
        return self.page.screenshot()

    def perform(self, action: Action) -> None:
        self.page.perform(action)

    def execute(
        self,
        command: Sequence[str],
        *,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        timeout_s: float = 60.0,
    ) -> Executed:
        """Evaluate JavaScript in the page: `["js", expression]`. An exception gives code 1 and its text as standard error."""
        if len(command) != 2 or command[0] != "js" or stdin or env:
            raise InputError('a browser can only execute ["js", expression], without input and variables.')
        try:
            value = self.page.evaluate(command[1], timeout_s=timeout_s)
        except ScriptFailed as error:
            return Executed(code=1, stdout=b"", stderr=str(error).encode())
        except BrowserTimeout:
            self.page.stop_script()
            return Executed(code=-signal.SIGKILL, stdout=b"", stderr=b"", timed_out=True)
        text = json.dumps(value).encode()
        return Executed(code=0, stdout=text[:LARGEST_OUTPUT], stderr=b"", cut=len(text) > LARGEST_OUTPUT)

    def launch(self, command: Sequence[str]) -> None:
        """Open a page: `["open", address]`, or the path of a file."""
        if len(command) != 2 or command[0] != "open":
            raise InputError('a browser can only launch ["open", address].')
        address = command[1]
        try:
            self.page.open(address if ":" in address else self._path(address).as_uri())
        except BrowserRefused as error:
            raise InputError(f"{address!r} cannot be opened: {error}") from None

    def read(self, path: str) -> bytes:
        found = self._path(path)
        try:
            with found.open("rb") as file:
                data = file.read(LARGEST_FILE + 1)
        except OSError as error:
            raise InputError(f"{path!r} cannot be read: {error.strerror}") from None
        if len(data) > LARGEST_FILE:
            raise InputError(f"{path!r} cannot be read: it has more than {LARGEST_FILE} bytes")
        return data

    def write(self, path: str, data: bytes) -> None:
        found = self._path(path)
        try:
            found.parent.mkdir(parents=True, exist_ok=True)
            found.write_bytes(data)
        except OSError as error:
            raise InputError(f"{path!r} cannot be written: {error.strerror}") from None

    def reset(self) -> None:
        """Discard the browser and start a new one."""
        self.close()
        self._start()

    def close(self) -> None:
        """End it and remove its files. May be called twice."""
        self._connection.close()
        if self._pid:
            _end(self._pid)
        self._pid = 0  # its pid may be reused
        self._remove()

    def _remove(self) -> None:
        for each in (self._temporary, self._place):
            _remove(each)

    def _start(self) -> None:
        self._home.mkdir(parents=True)
        self._temporary = _short_folder(self._place)
        try:
            self._pid, self._connection = _spawn(self._executable, self._place, self._temporary)
        except BrowserError:
            self._remove()
            raise
        try:
            self.page = Page(self._connection, self._size)
        except BrowserError as error:
            said = _last_words(self._place / "chromium.log")
            self.close()
            raise type(error)(f"{self._executable} did not start: {error}{f' ({said})' if said else ''}") from None
        except BaseException:
            self.close()
            raise

    def _path(self, name: str) -> Path:
        """Return the path of a file. The browser is not a sandbox, so nothing outside its home is accessible."""
        try:
            name.encode("utf-8")
            path = (self._home / name).resolve()
        except (OSError, ValueError, RuntimeError):
            path = self._place
        if not path.is_relative_to(self._home.resolve()):
            raise InputError(f"{name!r} is not a path below the browser's home.")
        return path


def _spawn(executable: str, place: Path, temporary: Path) -> tuple[int, Connection]:
    """Start Chromium in its own process group, with its pipes at descriptors 3 and 4."""
    theirs_in, ours_out = os.pipe()
    ours_in, theirs_out = os.pipe()
    # Above 9, so that moving one to its place cannot overwrite the other.
    ends = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 10) for fd in (theirs_in, theirs_out)]
    inherited = config.environment()
    env = {name: inherited[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in inherited}
    # The marks by which the runner finds an attempt's processes, even if its other processes are dead.
    env |= {name: value for name, value in inherited.items() if name.startswith("EVALFLEET_")}
    env |= {"HOME": str(place / "home"), "TMPDIR": str(temporary), "TZ": "UTC"}
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
    """Make a folder for temporary files. Chromium puts a socket there, whose path may have at most 107 bytes."""
    inside = place / "tmp"
    if len(os.fsencode(inside)) <= _LONGEST_TEMPORARY:
        inside.mkdir()
        return inside
    return Path(tempfile.mkdtemp(prefix="evalfleet-"))


def _last_words(log: Path) -> str:
    """Return the line of the log that says why it ended, or nothing."""
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
