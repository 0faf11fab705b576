"""The runner of this node: started by the pilot, watched, and started again if it dies."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

IDLE_S = 600.0
ANSWER_S = 60.0
PROTOCOL = 1
PIECE = 1 << 18


class RunnerError(OSError):
    """The runner cannot be started, does not answer, or refuses."""


class RunnerProcess:
    """The runner's program and its spool."""

    def __init__(self, program: str, spool: str) -> None:
        self.program = program
        self.spool = spool

    def start(self) -> str:
        """Start a runner unless one runs. Returns the path of its socket. Raises RunnerError."""
        line = self._call("serve", "--idle", "%g" % IDLE_S)
        if "socket" not in line:
            raise RunnerError("the runner does not start: %s" % line.get("message"))
        return str(line["socket"])

    def connect(self) -> socket.socket:
        """A connection to a runner that runs. Raises OSError."""
        peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            peer.connect(self.start())
        except OSError:
            peer.close()
            raise
        return peer

    def kill(self) -> None:
        """End a runner that does not answer; the next one finds its attempts."""
        self._call("kill")

    def _call(self, *words: str) -> dict[str, Any]:
        command = [sys.executable, "-I", "-S", self.program, words[0], "--spool", self.spool, *words[1:]]
        try:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=ANSWER_S, check=False
            )
            return dict(json.loads(done.stdout.decode()))
        except (subprocess.TimeoutExpired, ValueError) as error:
            raise RunnerError("the runner's program gave no answer: %s" % error) from None


class RunnerClient:
    """One connection to the runner for requests of the pilot itself. Not for several threads at once."""

    def __init__(self, peer: socket.socket) -> None:
        peer.settimeout(ANSWER_S)
        self._file = peer.makefile("rwb")
        self._peer = peer
        self._number = 0

    def request(self, do: str, **fields: Any) -> dict[str, Any]:
        """Raises OSError where the connection broke, RunnerError where the runner refused."""
        self._number += 1
        self._file.write(json.dumps(dict(fields, id=self._number, do=do)).encode() + b"\n")
        self._file.flush()
        while True:
            line = self._file.readline()
            if not line:
                raise OSError("the runner closed the connection")
            answer = dict(json.loads(line.decode()))
            if answer.get("id") == self._number:
                break
        if not answer.get("ok"):
            raise RunnerError("the runner refused: %s" % answer.get("message"))
        return answer

    def close(self) -> None:
        try:
            self._file.close()
        except OSError:
            pass  # what was not sent is lost with the connection
        self._peer.close()


def write_program(folder: str, data: bytes, version: str) -> str:
    """Lay the runner's program into the folder. Returns its path."""
    path = os.path.join(folder, "runner-%s.pyz" % version)
    if not os.path.exists(path):
        partial = "%s.%d" % (path, os.getpid())
        with open(partial, "wb") as file:
            file.write(data)
        os.rename(partial, path)
    return path
