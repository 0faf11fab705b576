"""Runs on a host: creates the virtual environment for a run's tasks, or finds the existing one. Standard library only.

Its standard input holds this text, one line of JSON with its orders and, if it asks for them, the bytes of the wheels in order. It
answers in marked lines: ``tell`` (what it does now), ``send`` (it wants the wheels), and finally ``python``, or ``error`` with the
``step`` that failed. When its standard input ends, it ends with all its child processes.

The environment is complete or absent: a lock protects the folder while anything works in it, even if this program was killed and
pip still runs; a file written last marks it as finished; an unfinished one is removed and created again.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import platform
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from importlib.util import find_spec
from typing import Any

MARK = "EVALFLEET-HOST "
FINISHED = "finished.json"
WHEELS = "wheels"
WAIT_S = 0.2
TAIL = 6  # of pip's lines, where it fails
ADVICE = re.compile(r"\d\. |To fix this|Additionally|\[notice\]")  # pip's advice for the author of the requirements
SHOWN = ("Collecting ", "Downloading ", "Installing collected packages")


class InstallFailed(Exception):
    """What is wrong, and what to do; `step` is the program that failed, if one did."""

    def __init__(self, message: str, step: str = "") -> None:
        super().__init__(message)
        self.step = step


def say(**line: Any) -> None:
    with contextlib.suppress(BrokenPipeError):
        os.write(1, (MARK + json.dumps(line) + "\n").encode())


class EnvironmentFolder:
    """The folder of one environment. Its name includes the host's Python and processor: several hosts may share a home folder."""

    def __init__(self, top: str, key: str) -> None:
        self.top = os.path.expanduser(top.replace("{hostname}", socket.gethostname()))
        os.makedirs(self.top, mode=0o700, exist_ok=True)
        self.folder = os.path.join(self.top, f"{key}-{sys.implementation.cache_tag}-{platform.machine()}")
        self.python = os.path.join(self.folder, "bin", "python")
        self._finished = os.path.join(self.folder, FINISHED)

    def use(self) -> bool:
        """Whether it is finished; records the time of use."""
        try:
            os.utime(self._finished)
        except FileNotFoundError:
            return False
        return True

    def finish(self, orders: dict[str, Any]) -> None:
        partial = f"{self._finished}.partial"
        with open(partial, "w", encoding="utf-8") as file:
            json.dump({"install": orders["install"], "bare": orders["bare"], "pins": orders["pins"]}, file)
            file.flush()
            os.fsync(file.fileno())
        os.rename(partial, self._finished)

    def clear(self) -> None:
        if os.path.lexists(self.folder):
            shutil.rmtree(self.folder)


def lock(folder: str) -> int | None:
    """Take the lock of a folder, which lies beside it; None while another process has it."""
    descriptor = os.open(f"{folder}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def wait_for_lock(place: EnvironmentFolder, until: float) -> int:
    told = False
    while True:
        held = lock(place.folder)
        if held is not None:
            return held
        if not told:
            say(tell="another evalfleet is installing the tools there; waiting for it")
            told = True
        if time.monotonic() >= until:
            raise InstallFailed("another evalfleet has been installing the tools there for too long; try again later")
        if select.select([0], [], [], WAIT_S)[0]:
            sys.exit(1)  # nothing is sent before we ask for it: it is the end


def prune(place: EnvironmentFolder, unused_s: float) -> None:
    """Remove environments that have not been used for long, and those that were never finished."""
    for name in sorted(os.listdir(place.top)):
        folder = os.path.join(place.top, name)
        if folder == place.folder or not os.path.isdir(folder):
            continue
        with contextlib.suppress(OSError):
            used = os.path.join(folder, FINISHED)
            at = os.stat(used if os.path.exists(used) else folder).st_mtime
            if time.time() - at < unused_s:
                continue
            held = lock(folder)
            if held is not None:
                say(tell=f"removing {folder}, unused for {unused_s / 86400:.0f} days")
                shutil.rmtree(folder)
                os.close(held)  # its file stays: another process may be waiting for it


def receive(place: EnvironmentFolder, wheels: list[list[Any]]) -> None:
    """Receive the wheels."""
    folder = os.path.join(place.folder, WHEELS)
    os.makedirs(folder)
    say(send=True)
    with open(0, "rb", closefd=False) as given:
        for name, digest, size in wheels:
            data = given.read(size)
            if len(data) < size:
                raise InstallFailed("the connection ended while the wheels were sent")
            if hashlib.sha256(data).hexdigest() != digest:
                raise InstallFailed(f"{name} arrived damaged; try again")
            with open(os.path.join(folder, os.path.basename(name)), "wb") as file:
                file.write(data)


class InstallSteps:
    """Runs programs one after the other; they end with this program, with its standard input, and at the deadline."""

    def __init__(self, held: int, until: float) -> None:
        self._held = held
        self._until = until
        self._ended = ""
        self._process: subprocess.Popen[str] | None = None
        self._lock = threading.Lock()
        threading.Thread(target=self._watch, daemon=True).start()

    def run(self, what: str, *words: str) -> None:
        with self._lock:
            if self._ended:
                raise InstallFailed(self._ended)
            self._process = process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                start_new_session=True,
                pass_fds=[self._held],  # the lock is theirs, too
            )
        lines: list[str] = []
        assert process.stdout is not None
        for line in process.stdout:
            if line.strip() and not ADVICE.match(line):
                lines = [*lines[1 - TAIL :], line.strip()]
            if line.startswith(SHOWN):
                say(tell=line.strip()[:200])
        status = process.wait()
        if self._ended:
            raise InstallFailed(self._ended)
        if status:
            raise InstallFailed(f"{what} failed with status {status}: {' | '.join(lines) or 'no output'}", what)

    def _watch(self) -> None:
        while True:
            left_s = self._until - time.monotonic()
            ready = select.select([0], [], [], max(0.0, left_s))[0]
            if ready and os.read(0, 4096):
                continue
            with self._lock:
                self._ended = (
                    "the connection ended" if ready else "it took too long; try again, or check what is slow there"
                )
                if self._process is not None and self._process.poll() is None:
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(self._process.pid, signal.SIGKILL)
            return


def make(place: EnvironmentFolder, orders: dict[str, Any], steps: InstallSteps) -> None:
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    say(tell=f"creating a virtual environment with Python {version} and installing {', '.join(orders['titles'])}")
    steps.run("creating a virtual environment", sys.executable, "-I", "-m", "venv", place.folder)
    wheels = os.path.join(place.folder, WHEELS)
    pins = os.path.join(place.folder, "pins.txt")
    with open(pins, "w", encoding="utf-8") as file:
        file.write(orders["pins"])
    pip = [
        *(place.python, "-I", "-m", "pip", "install", "--disable-pip-version-check", "--no-input", "--no-color"),
        *("--progress-bar", "off", "--no-warn-script-location", "--retries", "2", "--timeout", "30"),
        *("--constraint", pins, "--find-links", wheels, *(["--no-index"] if orders["no_index"] else [])),
    ]
    # By their paths: a package of the same name and version that an index has is another one.
    ours = [os.path.join(wheels, name) + extras for name, extras in orders["install"]]
    steps.run("pip", *pip, *ours)
    if orders["bare"]:
        steps.run("pip", *pip, "--no-deps", *orders["bare"])
    steps.run("the first start of evalfleet there", place.python, "-I", "-m", "evalfleet", "--version")
    shutil.rmtree(wheels)


def install(orders: dict[str, Any]) -> None:
    until = time.monotonic() + orders["limit_s"]
    place = EnvironmentFolder(orders["folder"], orders["key"])
    if place.use():
        say(python=place.python, fresh=False)
        return
    if find_spec("ensurepip") is None or find_spec("venv") is None:
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        raise InstallFailed(
            f"its Python {version} ({sys.executable}) cannot create virtual environments; install the package there: "
            f"apt-get install -y python{version}-venv"
        )
    held = wait_for_lock(place, until)
    if not place.use():
        place.clear()
        try:
            receive(place, orders["wheels"])
            make(place, orders, InstallSteps(held, until))
            place.finish(orders)
        except BaseException:
            place.clear()
            raise
        prune(place, orders["unused_s"])
    say(python=place.python, fresh=True)


def main() -> None:
    # raw, because what follows the line is not read before it is asked for
    with open(0, "rb", buffering=0, closefd=False) as given:
        orders: dict[str, Any] = json.loads(given.readline())
    try:
        install(orders)
    except InstallFailed as error:
        say(error=str(error), step=error.step)
    except OSError as error:
        say(error=f"{error.filename or orders['folder']}: {error.strerror or error}")


if __name__ == "__main__":
    main()
