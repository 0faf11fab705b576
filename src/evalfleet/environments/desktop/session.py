"""The owner's end of a desktop: starts `desktop.init` with or without a sandbox, sends it requests, and ends it."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from evalfleet import config
from evalfleet.environments.base import Executed, Size
from evalfleet.environments.desktop import init, sandbox, settings
from evalfleet.environments.desktop.x11.protocol import XConnection
from evalfleet.errors import DesktopError, InputError

_ANSWER_S = 30.0  # beyond the time that an order itself may take
_MARKS = ("EVALFLEET_ATTEMPT", "EVALFLEET_TASK")  # marks by which the runner finds an attempt's processes
_VARIABLES = {
    "GDK_BACKEND": "x11",
    "GSETTINGS_BACKEND": "keyfile",
    "LANG": "C.UTF-8",
    "NO_AT_BRIDGE": "1",
    "SAL_USE_VCLPLUGIN": "gtk3",
    "TZ": "UTC",
    "XDG_CURRENT_DESKTOP": "openbox",
}


class Session:
    """A desktop that is up, except perhaps its window manager. Ends with `close`, or when its owner dies.

    Args:
        folder: where a plain desktop keeps its files; a sandboxed one keeps none.
        mode: how it is kept apart from the machine.
        home: of a plain desktop, where it is to stay; None: a new one, which is removed.
        env: variables for all programs inside.

    Raises:
        DesktopError: names the part that did not come up, with its last output.
    """

    def __init__(
        self,
        folder: Path,
        size: Size,
        mode: sandbox.Mode,
        *,
        env: Mapping[str, str],
        timeout_s: float,
        home: Path | None = None,
    ) -> None:
        bwrap = sandbox.chosen(mode)
        self.sandboxed = bwrap is not None
        self._place: Path | None = None
        if bwrap is None:
            self._place = folder / "desktop"
            self._place.mkdir(parents=True)
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 — closed with the session
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._process = self._spawn(bwrap, theirs)
        path = {"PATH": sandbox.PATH} if self.sandboxed else _variables(("PATH", "LD_LIBRARY_PATH"))
        try:
            self._cookie = secrets.token_bytes(16)
            self._order(
                {
                    "do": "start",
                    "home": str(home or self._place / "home") if self._place else sandbox.HOME,
                    "place": str(self._place or sandbox.PLACE),
                    "size": f"{size.width}x{size.height}",
                    "cookie": self._cookie.hex(),
                    "files": settings.files(),
                    "env": {**_VARIABLES, **path, **env, **_variables(_MARKS)},
                    "timeout_s": timeout_s,
                },
                timeout_s=timeout_s,
            )
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    def connect(self) -> XConnection:
        """Return a connection to its X server."""
        self._socket.settimeout(_ANSWER_S)
        try:
            init.send_frame(self._socket, {"do": "connect"})
            self._answer()
            _, descriptors, _, _ = socket.recv_fds(self._socket, 1, 1)
            self._answer()
        except OSError as error:
            raise self._gone(error) from None
        return XConnection(socket.socket(fileno=descriptors[0]), self._cookie)

    def deaths(self, *, patience_s: float = 0.0) -> list[str]:
        """Return how dead parts ended; with patience, wait up to that long for one to end."""
        dead: list[str] = self._order({"do": "health", "patience_s": patience_s})[0]["dead"]
        return dead

    def execute(self, command: Sequence[str], stdin: bytes, env: Mapping[str, str], timeout_s: float) -> Executed:
        order = {"do": "execute", "command": list(command), "env": dict(env), "timeout_s": timeout_s}
        told, outputs = self._order(order, stdin, timeout_s=timeout_s)
        return Executed(
            code=told["code"],
            stdout=outputs[: told["stdout"]],
            stderr=outputs[told["stdout"] :],
            timed_out=told["timed_out"],
            cut=told["cut"],
        )

    def launch(self, command: Sequence[str]) -> None:
        self._order({"do": "launch", "command": list(command)})

    def read(self, path: str) -> bytes:
        return self._order({"do": "read", "path": path})[1]

    def write(self, path: str, data: bytes) -> None:
        self._order({"do": "write", "path": path}, data)

    def close(self) -> None:
        """End it and remove its files. May be called twice."""
        self._socket.close()  # noticed inside, where everything is ended in order
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_ANSWER_S)
        with contextlib.suppress(ProcessLookupError):
            if self._process.poll() is None:
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._said.close()
        if self._place is not None:
            _remove(self._place)

    def _spawn(self, bwrap: str | None, theirs: socket.socket) -> subprocess.Popen[bytes]:
        program = os.path.realpath(init.__file__)
        python, visible = sandbox.interpreter()
        descriptors: list[int] = []
        argv = [python, "-I", "-S", program, str(theirs.fileno())]
        if bwrap is not None:
            argv = [*sandbox.arguments(bwrap, descriptors, [*visible, program]), *argv, "contained"]
        try:
            return subprocess.Popen(
                argv,
                env=_variables(("PATH", "LD_LIBRARY_PATH", *_MARKS)),
                stdin=subprocess.DEVNULL,
                stdout=self._said,
                stderr=self._said,
                pass_fds=(theirs.fileno(), *descriptors),
                process_group=0,
            )
        finally:
            for fd in descriptors:
                os.close(fd)

    def _order(self, head: Mapping[str, Any], body: bytes = b"", *, timeout_s: float = 0.0) -> init.Frame:
        """Give an order and return the answer."""
        self._socket.settimeout(timeout_s + _ANSWER_S)
        try:
            init.send_frame(self._socket, head, body)
            return self._answer()
        except OSError as error:
            raise self._gone(error) from None

    def _answer(self) -> init.Frame:
        frame = init.receive_frame(self._socket)
        if frame is None:
            raise ConnectionResetError
        if "error" in frame[0]:
            raise (InputError if frame[0]["kind"] == "input" else DesktopError)(frame[0]["error"])
        return frame

    def _gone(self, error: OSError) -> DesktopError:
        if isinstance(error, TimeoutError):
            return DesktopError("the desktop does not answer")
        if self._said.closed:
            return DesktopError("the desktop is closed")
        self._said.seek(0)
        words = self._said.read().decode("utf-8", "replace").strip().splitlines()
        return DesktopError(f"the desktop is gone{f' ({words[-1][:300]})' if words else ''}")


def _variables(names: Sequence[str]) -> dict[str, str]:
    inherited = config.environment()
    return {name: inherited[name] for name in names if name in inherited}


def _remove(place: Path, deadline_s: float = 2.0) -> None:
    deadline = time.monotonic() + deadline_s
    while place.exists() and time.monotonic() < deadline:
        shutil.rmtree(place, ignore_errors=True)  # a dying child may still write into it
