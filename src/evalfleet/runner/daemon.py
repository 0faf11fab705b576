"""Starts the single runner of a spool, or finds the one that runs."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import time
import zlib

from . import jsontext
from .attempt import process_tree
from .protocol import PROTOCOL
from .spool.spool import Spool, verify_private, write_atomically

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SHUT = ".shut"
WAIT_S = 60.0  # for another runner that is just starting: it may have much to recover


def lock(spool: Spool) -> int | None:
    """Lock the spool for the life of this process. None if another runner has it."""
    fd = os.open(spool.path("runner.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        return None
    return fd


def running(spool: Spool) -> dict[str, Any] | None:
    """Where the runner that holds the spool listens, as a line of JSON; None if it does not."""
    try:
        with open(spool.path("runner.json"), "rb") as file:
            line = json.load(file)
        if process_tree.is_same(int(line["pid"]), int(line["start_time"]), line["boot_id"]):
            return line
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return None


def socket_path(spool: Spool) -> str:
    """A short path in a private folder: socket paths are limited to 108 bytes."""
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if runtime and os.path.isdir(runtime) and len(os.fsencode(runtime)) < 60:
        folder = os.path.join(runtime, "evalfleet")
    else:
        folder = "/tmp/evalfleet-%d" % os.getuid()
    try:
        os.mkdir(folder, 0o700)
    except FileExistsError:
        pass
    verify_private(folder)
    name = os.fsencode(spool.folder)
    return os.path.join(folder, "%08x%08x.sock" % (zlib.crc32(name), zlib.crc32(name[::-1] + b"evalfleet")))


def serve(folder: str, idle_s: float, version: str) -> dict[str, Any]:
    """Start a daemon for the spool unless one runs.

    Returns:
        The line that says where the runner is, or ``{"error", "message"}``.
    """
    spool = Spool(folder)
    foreign = spool.foreign()
    if foreign is not None:
        return {
            "error": "foreign",
            "message": "%s was not created by a runner; give the runner its own folder" % foreign,
        }
    spool.make()
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        held = lock(spool)
        if held is not None:
            return _start(spool, held, idle_s, version)
        line = running(spool)
        if line is not None:
            if os.path.exists(line["socket"]):
                return line
            process_tree.kill(line["pid"], signal.SIGHUP)  # asks it to listen anew
        time.sleep(0.02)
    return {"error": "busy", "message": "another runner holds %s and does not answer" % spool.path("runner.lock")}


def _start(spool: Spool, held: int, idle_s: float, version: str) -> dict[str, Any]:
    _gone(spool.path("runner.json"))
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        os.close(reader)
        _daemon(spool, held, idle_s, version, writer)
    os.close(writer)
    os.close(held)
    os.waitpid(child, 0)
    with os.fdopen(reader, "rb") as file:
        data = file.read()
    return (
        json.loads(data)
        if data
        else {"error": "died", "message": "the runner died while it started; see %s" % spool.path("runner.log")}
    )


def _daemon(spool: Spool, held: int, idle_s: float, version: str, writer: int) -> None:
    """Run the daemon. Never returns."""
    status = 1
    told = False
    try:
        # Imported here: a program that only looks for a runner needs none of it, and a zipapp is compiled at every start.
        from .clock import steady
        from .commands import Commands
        from .runner import Runner
        from .spool.prune import Pruner
        from .spool.recovery import recover

        _detach(spool, {held, writer})
        spool.load()
        _gone(spool.path("reapable"))
        now = steady(spool, time.time)
        runner = Runner(
            spool, RunnerSocket(spool, version), version, idle_s, lambda names: recover(spool, now, names), now
        )
        Pruner(spool, runner.loop, time.time)
        with open(spool.path("runner.json"), "rb") as file:
            os.write(writer, file.read())
        os.close(writer)
        told = True
        spool.empty_trash()
        runner.run(Commands(runner).serve)
        status = 0
    except BaseException as error:  # boundary: the service
        import traceback

        spool.log(traceback.format_exc())
        if not told:
            os.write(writer, jsontext.encode({"error": "failed", "message": str(error) or repr(error)}))
    finally:
        os._exit(status)


class RunnerSocket:
    """The socket for clients, and the file that says where it is."""

    def __init__(self, spool: Spool, version: str) -> None:
        self._spool = spool
        self._version = version
        self._path: str | None = None

    def open(self) -> socket.socket:
        """Listen, and write the file that says where. May be called again if the socket file was deleted."""
        path = socket_path(self._spool)
        _gone(path)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(path)
        os.chmod(path, 0o600)
        listener.listen(128)
        listener.setblocking(False)
        self._path = path
        write_atomically(self._spool.path("runner.json"), _line(path, self._version))
        self._spool.log("listening on %s, version %s" % (path, self._version))
        return listener

    def shut(self) -> None:
        """Hide both, so that new clients wait for the next runner."""
        self._rename("", SHUT)

    def reopen(self) -> None:
        """Show both again, by renames, which work even on a full disk."""
        self._rename(SHUT, "")

    def close(self) -> None:
        """Remove both."""
        for path in self._files():
            _gone(path)
            _gone(path + SHUT)

    def _rename(self, old: str, new: str) -> None:
        for path in self._files():
            try:
                os.rename(path + old, path + new)
            except FileNotFoundError:
                pass  # swept away

    def _files(self) -> list[str]:
        return [self._spool.path("runner.json"), *([] if self._path is None else [self._path])]


def _line(path: str, version: str) -> bytes:
    me = process_tree.stat_of(os.getpid())
    return jsontext.encode(
        {
            "pid": os.getpid(),
            "start_time": me.start_time if me else 0,
            "boot_id": process_tree.boot_id(),
            "socket": path,
            "version": version,
            "protocol": PROTOCOL,
        }
    )


def _detach(spool: Spool, keep: set[int]) -> None:
    """Detach from the parent's folder, files, signals and terminal."""
    os.chdir("/")
    null = os.open("/dev/null", os.O_RDWR)
    log = os.open(spool.path("runner.log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.dup2(log, 2)
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) not in keep:
            try:
                os.close(int(name))
            except OSError:
                pass  # the folder's own descriptor
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP, signal.SIGPIPE, signal.SIGXFSZ}:
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


def _gone(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
