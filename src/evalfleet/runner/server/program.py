"""Runs a trial's command together with the server that it needs.

This program starts the server, waits until it is ready, runs the command, watches both, and stops the server. It is part of the
runner's archive, which is on every host already, and runs in the attempt's own process tree.

If the server fails, the attempt fails: the result then says how, in place of the command's own. Otherwise the result and the exit
status are the command's.
"""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import subprocess
import sys
import time
import urllib.parse

from ..attempt import process_tree
from . import failure
from .process import ReservedPort, ServerProcess, inherited, kill_descendants
from .readiness import ReadinessProbe, is_listened

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .failure import ServerFailure

PYTHON = "{python}"
PORT = "{port}"
TURNS = 3  # with a port each: the first is held, the others are let go for servers that cannot share it
HEARTBEAT_S = 2.0
LOOK_S = 0.5  # nothing waits for it: ends and signals wake us
TERMINATE_S = 1.5  # for the command's end, then for the server's, when a signal asks us to end: the runner gives 5 s
GONE_S = 0.3  # for a command whose server is gone
TAIL_LINES = 20


class ServerSettings:
    """The server's settings in the trial; {port} is not replaced yet."""

    def __init__(self, fields: dict[str, Any]) -> None:
        self.command: list[str] = fields["command"]
        self.ready: str = fields["ready"]
        self.ready_timeout_s: float = fields["ready_timeout_s"]
        self.stop_timeout_s: float = fields["stop_timeout_s"]
        self.env: dict[str, str] = fields["env"]
        self.port_in: list[str] = fields["port_in"]  # variables of the command that name the port


class Terminated(Exception):
    """A signal asked this program to end."""


class ServedBenchmark:
    def __init__(self, settings: ServerSettings, command: list[str]) -> None:
        self._settings = settings
        self._command = command
        self._artifacts = os.environ["EVALFLEET_ARTIFACTS"]
        self._signal = 0
        self._oom_before = process_tree.oom_kills()
        self._wake, self._waker = os.pipe()
        os.set_blocking(self._waker, False)

    def run(self) -> int:
        """Returns the exit status, after all processes below have ended."""
        process_tree.become_subreaper()
        signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._tell)
        try:
            found = self._trial()
        except Terminated:
            return 128 + self._signal
        finally:
            kill_descendants()
        return found if isinstance(found, int) else self._failed(found)

    def _tell(self, number: int, _frame: object) -> None:
        self._signal = number

    def _trial(self) -> int | ServerFailure:
        deadline = time.monotonic() + self._settings.ready_timeout_s
        for turn in range(TURNS):
            port = ReservedPort()
            if turn:
                port.release()
            found = self._with_server(port, deadline)
            port.release()
            if isinstance(found, int) or found.kind != failure.PORT_TAKEN or turn == TURNS - 1:
                return found
            self._say({"note": "server: the port %d is taken; trying another" % port.number})
        raise AssertionError("the last turn returns")

    def _with_server(self, port: ReservedPort, deadline: float) -> int | ServerFailure:
        settings, number = self._settings, str(port.number)
        url = settings.ready.replace(PORT, number)
        if is_listened(url):
            return failure.server_failure(failure.PORT_TAKEN, "", "server: something else listens at %s" % url)
        parts = urllib.parse.urlsplit(url)
        env = dict(
            os.environ, EVALFLEET_SERVER_PORT=str(parts.port or 80), EVALFLEET_SERVER_URL="http://" + parts.netloc
        )
        command = [word.replace(PORT, number) for word in settings.command]
        command[0] = sys.executable if command[0] == PYTHON else command[0]
        own = {name: value.replace(PORT, number) for name, value in settings.env.items()}
        try:
            server = ServerProcess(command, dict(env, **own), self._artifacts + "/server.log")
        except OSError as error:
            line = "%s: %r" % (error.strerror or error, command[0])
            return failure.server_failure(failure.LAUNCH_FAILED, line, "server: cannot be executed")
        try:
            failed = self._deploy(server, url, deadline)
            if failed is not None:
                return failed
            self._say({"ready": True})
            return self._benchmark(server, self._environment(env, number), number)
        finally:
            server.stop(self._patience_s(server))

    def _patience_s(self, server: ServerProcess) -> float:
        """How long the server may take to end. Leftovers of a dead server get no time."""
        if server.status() is not None:
            return 0.0
        return min(self._settings.stop_timeout_s, TERMINATE_S) if self._signal else self._settings.stop_timeout_s

    def _environment(self, env: dict[str, str], port: str) -> dict[str, str]:
        changed = {name: env[name].replace(PORT, port) for name in self._settings.port_in if name in env}
        return dict(env, **changed)

    def _deploy(self, server: ServerProcess, url: str, deadline: float) -> ServerFailure | None:
        """None when it is ready."""
        probe = ReadinessProbe(url, lambda: os.write(self._waker, b"r"))
        said_at, said_size = time.monotonic(), 0
        try:
            while True:
                self._sleep(LOOK_S)
                status, now = server.status(), time.monotonic()
                if status is not None:
                    return self._ended(server, status, ready=False)
                if probe.ready.is_set():
                    return None
                if now >= deadline:
                    return failure.late(self._settings.ready_timeout_s, probe.last, server.log.lines())
                if server.log.size > said_size and now - said_at >= HEARTBEAT_S:
                    # A load that still says something is no stall.
                    said_at, said_size = now, server.log.size
                    self._say({"note": "server: %s" % server.log.lines()[-1][:200]})
        finally:
            probe.end()

    def _benchmark(self, server: ServerProcess, env: dict[str, str], port: str) -> int | ServerFailure:
        words = [word.replace(PORT, port) for word in self._command]
        words[0] = sys.executable if words[0] == PYTHON else words[0]
        try:
            command = subprocess.Popen(words, env=env, pass_fds=inherited())
        except OSError as error:
            sys.stderr.write("evalfleet: %s: %r: not found or not executable\n" % (error.strerror or error, words[0]))
            return 127
        try:
            while True:
                status = server.status()
                if status is not None:  # asked first: what a command measured of a dead server is worth nothing
                    return self._ended(server, status, ready=True)
                status = command.poll()
                if status is not None:
                    return status
                self._sleep(LOOK_S)
        finally:
            _end(command, TERMINATE_S if self._signal else GONE_S)

    def _ended(self, server: ServerProcess, status: int, *, ready: bool) -> ServerFailure:
        server.log.finish()
        oom = process_tree.oom_kills() > self._oom_before
        return failure.ended(status, server.log.lines(), ready=ready, oom=oom)

    def _sleep(self, at_most_s: float) -> None:
        """Sleep until a child ends, a signal arrives, the probe succeeds, or the time is over. Raises Terminated."""
        if select.select([self._wake], [], [], at_most_s)[0]:
            os.read(self._wake, 4096)
        if self._signal:
            raise Terminated

    def _say(self, line: dict[str, Any]) -> None:
        with open(os.environ["EVALFLEET_EVENTS"], "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def _failed(self, failed: ServerFailure) -> int:
        """Write a result that says how the server failed; the command's own result is kept beside it."""
        path = os.environ["EVALFLEET_RESULT"]
        try:
            os.rename(path, self._artifacts + "/result-of-command.json")
        except OSError:
            pass  # it wrote none
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"error": failed.evidence, "error_kind": failed.kind}, file)
        _print_tail(self._artifacts + "/server.log")
        sys.stderr.write("evalfleet: %s: %s\n" % (failed.kind, failed.evidence))
        return 1


def _print_tail(path: str) -> None:
    """Print the end of the server's log, so that it appears in the attempt's output."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - 4096))
            lines = file.read().decode("utf-8", "replace").splitlines()[-TAIL_LINES:]
    except OSError:
        return
    sys.stderr.write("".join("server: %s\n" % line for line in lines))


def _end(command: subprocess.Popen[bytes], patience_s: float) -> None:
    """End a command that still runs, with all its child processes."""
    if command.poll() is not None:
        return
    process_tree.kill(command.pid, signal.SIGTERM)
    try:
        command.wait(patience_s)
    except subprocess.TimeoutExpired:
        for pid in reversed(process_tree.descendants(command.pid)):
            process_tree.kill(pid)
        command.wait()


def main(words: list[str]) -> int:
    """Run the command after `--` with the server of the task's payload; returns the exit status, or dies by its signal."""
    with open(os.environ["EVALFLEET_TASK"], "rb") as file:
        settings = ServerSettings(json.load(file)["payload"]["server"])
    status = ServedBenchmark(settings, words[words.index("--") + 1 :]).run()
    if status < 0:  # the judge must see the command's own signal
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if status not in (-signal.SIGKILL, -signal.SIGSTOP):
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
        time.sleep(1.0)
    return status & 0xFF
