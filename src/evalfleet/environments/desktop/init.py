"""The first program inside a desktop: starts its parts, runs programs, moves files, and ends everything when it ends.

It runs as a file with a bare Python in the sandbox, so it imports only the standard library. It obeys one order at a
time. Orders arrive on the descriptor that its first argument names, as frames: the length of a JSON object, the object,
and as many bytes as its member `body` says. When that connection ends, so does the desktop.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import shutil
import signal
import socket
import stat
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

LARGEST_FILE = 64 << 20
LARGEST_OUTPUT = 4 << 20  # of each stream; the rest is read and dropped
_SHOWN = 300  # characters of a part's last output
_PDEATHSIG, _SUBREAPER = 1, 36
_X_OPTIONS = (
    *("-nolisten", "tcp", "-noreset", "-s", "0", "-dpi", "96", "-maxclients", "512"),
    *("-displayfd", "{fd}", "-screen", "0", "{size}x24", "-auth", "{auth}"),
)
Frame = tuple[dict[str, Any], bytes]


class Wrong(Exception):
    """An order that cannot be obeyed; the desktop goes on. Told with the kind "input"."""


class Broken(Exception):
    """A part of the desktop does not work. Told with the kind "environment"."""


def send_frame(sock: socket.socket, head: Mapping[str, Any], body: bytes = b"") -> None:
    text = json.dumps({**head, "body": len(body)}).encode()
    sock.sendall(struct.pack("<I", len(text)) + text + body)


def receive_frame(sock: socket.socket) -> Frame | None:
    """Return the next frame, or None where the other side has left."""
    prefix = _receive(sock, 4)
    text = prefix and _receive(sock, struct.unpack("<I", prefix)[0])
    if not text:
        return None
    head: dict[str, Any] = json.loads(text)
    body = _receive(sock, head["body"])
    return None if body is None else (head, body)


def _receive(sock: socket.socket, count: int) -> bytes | None:
    parts: list[bytes] = []
    while count:
        block = sock.recv(min(count, 1 << 20))
        if not block:
            return None
        parts.append(block)
        count -= len(block)
    return b"".join(parts)


class Part:
    """A process that the desktop cannot do without."""

    def __init__(self, name: str, process: subprocess.Popen[bytes], log: Path) -> None:
        self.name = name
        self.process = process
        self._log = log

    def death(self) -> str | None:
        """Return how it ended, with its last output; None while it lives."""
        code = self.process.poll()
        if code is None:
            return None
        if code < 0:
            return f"{self.name} was killed by signal {-code}"
        lines = self._log.read_text("utf-8", "replace").split("\n") if self._log.exists() else []
        words = [line.strip() for line in lines if line.strip()]
        return f"{self.name} ended with status {code}{f' ({words[-1][:_SHOWN]})' if words else ''}"


class Init:
    """Starts and serves one desktop.

    Args:
        contained: whether the end of this process ends all others in its pid namespace.
    """

    def __init__(self, sock: socket.socket, *, contained: bool) -> None:
        self._socket = sock
        self._contained = contained
        self._libc = ctypes.CDLL(None)
        self._parts: list[Part] = []
        self._launched: list[subprocess.Popen[bytes]] = []
        self._env: dict[str, str] = {}
        self._home = Path()
        self._place: Path | None = None
        self._logs = Path()
        self._libc.prctl(_SUBREAPER, 1, 0, 0, 0)

    def serve(self) -> None:
        """Obey until the other side leaves."""
        orders: dict[str, Callable[[dict[str, Any], bytes], Frame]] = {
            "start": self._start,
            "connect": self._connect,
            "health": self._health,
            "execute": self._execute,
            "launch": self._launch,
            "read": self._read,
            "write": self._write,
        }
        while (frame := receive_frame(self._socket)) is not None:
            head, body = frame
            try:
                answer, data = orders[head["do"]](head, body)
            except Wrong as error:
                answer, data = {"error": str(error), "kind": "input"}, b""
            except (Broken, OSError) as error:
                answer, data = {"error": str(error), "kind": "environment"}, b""
            send_frame(self._socket, answer, data)
            self._launched = [process for process in self._launched if process.poll() is None]

    def end(self) -> None:
        """End all processes of the desktop."""
        if self._contained:
            os._exit(0)  # the first process of the namespace ends with us, and with it all others
        for part in self._parts:
            part.process.terminate()  # the X server removes its socket and lock
        deadline = time.monotonic() + 1.0
        while any(part.process.poll() is None for part in self._parts) and time.monotonic() < deadline:
            time.sleep(0.005)
        while others := _below(os.getpid()):
            for pid in others:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
        if self._place is not None:
            shutil.rmtree(self._place, ignore_errors=True)

    # Orders

    def _start(self, head: dict[str, Any], _body: bytes) -> Frame:
        """Bring up D-Bus, the X server and the window manager. The window manager sets a property of the root window when it is up."""
        self._home, self._place = Path(head["home"]), Path(head["place"])
        place = self._place
        self._logs, runtime = place / "logs", place / "runtime"
        for folder in (self._home, self._logs, runtime, place / "tmp"):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for name, text in head["files"].items():
            self._write({"path": name}, text.encode())
        if self._contained:
            Path("/tmp/.X11-unix").mkdir(mode=0o1777)  # the server makes it for root only
        deadline = time.monotonic() + head["timeout_s"]
        cookie = bytes.fromhex(head["cookie"])
        authority = place / "authority"
        authority.write_bytes(_authority(cookie))
        self._env = {
            **head["env"],
            "HOME": str(self._home),
            "TMPDIR": "/tmp" if self._contained else str(place / "tmp"),
            "XDG_RUNTIME_DIR": str(runtime),
            "XAUTHORITY": str(authority),
            "DBUS_SESSION_BUS_ADDRESS": f"unix:path={runtime}/bus",
        }
        address = f"--address={self._env['DBUS_SESSION_BUS_ADDRESS']}"
        bus_said = self._part(
            "D-Bus", ["dbus-daemon", "--session", "--nofork", "--nopidfile", address, "--print-pid={fd}"]
        )
        options = [each.format(fd="{fd}", size=head["size"], auth=authority) for each in _X_OPTIONS]
        number_said = self._part("the X server", ["Xvfb", *options])
        self._env["DISPLAY"] = f":{_line(number_said, self._parts[1], deadline)}"
        os.close(self._part("the window manager", ["openbox", "--sm-disable"]))
        _line(bus_said, self._parts[0], deadline)
        return {"display": self._env["DISPLAY"]}, b""

    def _connect(self, _head: dict[str, Any], _body: bytes) -> Frame:
        """Pass a connection to the X server, as a descriptor that follows the answer's frame."""
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with sock:
            sock.connect(f"/tmp/.X11-unix/X{self._env['DISPLAY'][1:]}")
            send_frame(self._socket, {"follows": "descriptor"})
            socket.send_fds(self._socket, [b"x"], [sock.fileno()])
        return {}, b""

    def _health(self, head: dict[str, Any], _body: bytes) -> Frame:
        """Tell which parts are dead. With patience, wait a little for the X server: its sockets end before it does."""
        server = self._parts[1].process
        if server.poll() is None:
            fd = os.pidfd_open(server.pid)
            select.select([fd], [], [], head["patience_s"])
            os.close(fd)
        return {"dead": [said for part in self._parts if (said := part.death()) is not None]}, b""

    def _execute(self, head: dict[str, Any], body: bytes) -> Frame:
        source = os.memfd_create("stdin")
        with open(source, "wb", closefd=False) as file:
            file.write(body)
        os.lseek(source, 0, os.SEEK_SET)
        try:
            process = self._spawn(
                head["command"],
                {**self._env, **head["env"]},
                stdin=source,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
        finally:
            os.close(source)
        with process:
            outputs, late, cut = self._collect(process, time.monotonic() + head["timeout_s"])
            if late:
                _kill_tree(process.pid)
            code = process.wait()
        told = {"code": code, "timed_out": late, "cut": cut, "stdout": len(outputs[0])}
        return told, bytes(outputs[0] + outputs[1])

    def _launch(self, head: dict[str, Any], _body: bytes) -> Frame:
        with (self._logs / "launched").open("ab") as log:
            self._launched.append(
                self._spawn(head["command"], self._env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            )
        return {}, b""

    def _read(self, head: dict[str, Any], _body: bytes) -> Frame:
        path = self._path(head["path"])
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                if not stat.S_ISREG(os.fstat(fd).st_mode):
                    raise Wrong(f"{head['path']!r} cannot be read: it is not a file")
                with open(fd, "rb", closefd=False) as file:
                    data = file.read(LARGEST_FILE + 1)
            finally:
                os.close(fd)
        except OSError as error:
            raise Wrong(f"{head['path']!r} cannot be read: {error.strerror}") from None
        if len(data) > LARGEST_FILE:
            raise Wrong(f"{head['path']!r} cannot be read: it has more than {LARGEST_FILE} bytes")
        return {}, data

    def _write(self, head: dict[str, Any], body: bytes) -> Frame:
        path = self._path(head["path"])
        new = path.with_name(f".{os.urandom(4).hex()}.new")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.exists() and not path.is_file():
                raise Wrong(f"{head['path']!r} cannot be written: it is not a file")
            new.write_bytes(body)
            new.replace(path)
        except OSError as error:
            raise Wrong(f"{head['path']!r} cannot be written: {error.strerror}") from None
        return {}, b""

    # Processes

    def _part(self, name: str, argv: Sequence[str]) -> int:
        """Start a part; return the descriptor on which it says that it is up, which is {fd} in its arguments."""
        ours, theirs = os.pipe()
        log = self._logs / f"part_{len(self._parts)}"
        argv = [each.replace("{fd}", str(theirs)) for each in argv]
        with log.open("wb") as file:
            try:
                process = self._spawn(
                    argv, self._env, stdin=subprocess.DEVNULL, stdout=file, stderr=file, pass_fds=(theirs,)
                )
            except Wrong as error:
                raise Broken(f"{name}: {error}") from None
            finally:
                os.close(theirs)
        self._parts.append(Part(name, process, log))
        return ours

    def _spawn(self, argv: Sequence[str], env: Mapping[str, str], **more: Any) -> subprocess.Popen[bytes]:
        if not argv or not all(map(_is_text, argv)):
            raise Wrong(f"{list(argv)!r} is not a command")
        prepare = None if self._contained else self._die_with_parent
        try:
            process: Any = subprocess.Popen(
                argv,
                env=env,
                cwd=self._home,
                start_new_session=True,
                preexec_fn=prepare,  # noqa: PLW1509 — this program has one thread
                **more,
            )
            return process
        except (OSError, ValueError) as error:
            raise Wrong(f"{argv[0]!r} cannot be started: {getattr(error, 'strerror', error)}") from None

    def _die_with_parent(self) -> None:
        self._libc.prctl(_PDEATHSIG, signal.SIGKILL, 0, 0, 0)

    def _collect(self, process: subprocess.Popen[bytes], deadline: float) -> tuple[list[bytearray], bool, bool]:
        """Read both outputs until the process ends; background processes may keep them open, and are not awaited.

        Returns:
            The outputs, whether the deadline came first, and whether some output was dropped.
        """
        assert process.stdout is not None
        assert process.stderr is not None
        streams = {process.stdout.fileno(): bytearray(), process.stderr.fileno(): bytearray()}
        outputs, cut = list(streams.values()), False
        exited = os.pidfd_open(process.pid)
        try:
            while True:
                left = deadline - time.monotonic()
                control = self._socket.fileno()
                ready, _, _ = select.select([exited, control, *streams], [], [], max(0.0, left))
                if control in ready and not self._socket.recv(1, socket.MSG_PEEK):
                    self.end()
                    sys.exit(0)
                for fd in [fd for fd in ready if fd in streams]:
                    block = os.read(fd, 1 << 16)
                    kept = block[: LARGEST_OUTPUT - len(streams[fd])]
                    streams[fd] += kept
                    cut |= len(kept) < len(block)
                    if not block:
                        del streams[fd]
                if exited in ready and not any(fd in ready for fd in streams):
                    return outputs, False, cut
                if left <= 0:
                    return outputs, True, cut
        finally:
            os.close(exited)

    def _path(self, name: str) -> Path:
        if not name or "\0" in name or not _is_text(name):
            raise Wrong(f"{name!r} is not a path")
        return self._home / name


def _is_text(word: str) -> bool:
    """Whether it has no surrogates, which would be bytes of a broken encoding."""
    return word.encode("utf-8", "replace").decode() == word


def _line(fd: int, part: Part, deadline: float) -> str:
    """Return the line with which a part says that it is up."""
    text = b""
    with open(fd, "rb", buffering=0) as file:
        while not text.endswith(b"\n"):
            ready, _, _ = select.select([fd], [], [], max(0.0, deadline - time.monotonic()))
            block = file.read(100) if ready else b""
            if ready and not block:
                part.process.wait(5)
                raise Broken(part.death() or f"{part.name} closed its output")
            if not ready:
                raise Broken(f"{part.name} did not come up in time")
            text += block or b""
    return text.decode().strip()


def _authority(cookie: bytes) -> bytes:
    """Return an authority file with one cookie for every local display."""
    fields = (b"", b"", b"MIT-MAGIC-COOKIE-1", cookie)
    return struct.pack(">H", 0xFFFF) + b"".join(struct.pack(">H", len(field)) + field for field in fields)


def _below(pid: int) -> list[int]:
    """Return all descendants of a process."""
    found: list[int] = []
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return found
    for child in map(int, children):
        found += [child, *_below(child)]
    return found


def _kill_tree(pid: int) -> None:
    """Kill a process with all its descendants, and its group."""
    for each in (*_below(pid), pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(each, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def _go_on(_number: int, _frame: object) -> None:
    """Handle a signal by doing nothing."""


def main() -> None:
    init = Init(socket.socket(fileno=int(sys.argv[1])), contained="contained" in sys.argv[2:])
    # A signal to the attempt's group must not prevent the orderly end. Unlike SIG_IGN this is not inherited.
    signal.signal(signal.SIGTERM, _go_on)
    try:
        init.serve()
    except OSError:
        pass  # the other side is gone
    finally:
        init.end()


if __name__ == "__main__":
    main()
