"""A watched server as a process: its port, its log, its end."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
import time

from ..attempt import process_tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

LOG_BYTES = 32 << 20  # of the log that is kept; a server may write a line for every request
TAIL_BYTES = 256 << 10  # of what is looked at when it fails
CHUNK = 1 << 16
LAST_WORDS_S = 0.3  # for what a dead server's children still hold of its output
KILLED_S = 5.0
LOCKS = "EVALFLEET_GPU_LOCK_FDS"


def inherited() -> tuple[int, ...]:
    """The descriptors of the GPU locks from the runner. A process that holds one keeps the GPU locked."""
    words = os.environ.get(LOCKS, "").split(",")
    return tuple(int(word) for word in words if word.strip().isdigit())


class ReservedPort:
    """A free port that the kernel gives to no other program while we hold it.

    Its socket is bound but never listens. The kernel then does not pick the port for other programs, neither to listen nor to connect;
    but a server that sets SO_REUSEADDR or SO_REUSEPORT, as nearly all do, can listen on it.
    """

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self._socket.bind(("", 0))
        self.number: int = self._socket.getsockname()[1]

    def release(self) -> None:
        """Release the port, for a server that cannot share it."""
        self._socket.close()


class ServerLog:
    """Copies a server's output into a file, and keeps its last lines."""

    def __init__(self, fd: int, path: str) -> None:
        self.size = 0
        self._fd = fd
        self._tail = b""
        self._file: int | None = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._left = LOG_BYTES
        self._thread = threading.Thread(target=self._copy, daemon=True)
        self._thread.start()

    def lines(self) -> list[str]:
        """The last complete lines."""
        text = self._tail[-TAIL_BYTES:].decode("utf-8", "replace")
        return [line for line in text.replace("\r", "\n").split("\n") if line.strip()]

    def finish(self) -> None:
        """The server has ended: wait a moment for the rest of its output."""
        self._thread.join(LAST_WORDS_S)

    def _copy(self) -> None:
        while True:
            data = os.read(self._fd, CHUNK)
            if not data:
                break
            self._tail = (self._tail[-TAIL_BYTES:] if len(self._tail) > 2 * TAIL_BYTES else self._tail) + data
            self.size += len(data)
            self._keep(data)
        os.close(self._fd)
        if self._file is not None:
            os.close(self._file)

    def _keep(self, data: bytes) -> None:
        if self._file is None:
            return
        kept = data[: self._left]
        self._left -= len(kept)
        if len(kept) < len(data):
            kept += b"\n[evalfleet: the log is capped at %d bytes; the rest was thrown away]\n" % LOG_BYTES
        try:
            while kept:
                kept = kept[os.write(self._file, kept) :]
        except OSError:
            self._left = 0  # a full disk must not stop the server
        if self._left == 0:
            os.close(self._file)
            self._file = None


class ServerProcess:
    """A started server: the leader of its own process group, inside the attempt's process tree."""

    def __init__(self, command: Sequence[str], env: dict[str, str], log_path: str) -> None:
        """Raises OSError if it cannot be executed."""
        reader, writer = os.pipe()
        try:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=writer,
                stderr=writer,
                env=env,
                start_new_session=True,
                pass_fds=inherited(),
            )
        except OSError:
            os.close(reader)
            raise
        finally:
            os.close(writer)
        self.log = ServerLog(reader, log_path)

    def status(self) -> int | None:
        """As `Popen.returncode`; None while it runs."""
        return self.process.poll()

    def stop(self, timeout_s: float) -> None:
        """Ask the whole group to end, and kill what does not end in time."""
        process_tree.kill_group(self.process.pid, signal.SIGTERM)
        deadline = time.monotonic() + timeout_s
        while not self._empty() and time.monotonic() < deadline:
            time.sleep(0.02)
        if not self._empty():  # the number of an empty group may be in use again
            process_tree.kill_group(self.process.pid)
        try:
            self.process.wait(KILLED_S)
        except subprocess.TimeoutExpired:
            pass  # it hangs in the kernel; the runner tells
        self.log.finish()

    def _empty(self) -> bool:
        """Whether the group is empty. Its orphans are our children, because we are their subreaper: reap them."""
        if self.process.poll() is None:
            return False
        try:
            while os.waitpid(-self.process.pid, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            pass
        try:
            os.killpg(self.process.pid, 0)
        except OSError:
            return True
        return False


def kill_descendants(at_most_s: float = 2.0) -> None:
    """Kill all processes left below this one, including those that left their group and session."""
    deadline = time.monotonic() + at_most_s
    while time.monotonic() < deadline:
        left = [pid for pid in process_tree.descendants(os.getpid())[1:] if _lives(pid)]
        if not left:
            return
        for pid in left:
            process_tree.kill(pid)
        time.sleep(0.01)


def _lives(pid: int) -> bool:
    found = process_tree.stat_of(pid)
    return found is not None and not found.dead
