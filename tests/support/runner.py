"""A runner of one's own, and a plain blocking client for it: for tests of whatever stands on the runner."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from evalfleet.hosts.local.launcher import RunnerInfo, runner_info, write_runner
from evalfleet.model import JsonObject

PATIENCE_S = 60.0

T = TypeVar("T")


def wait_until(look: Callable[[], T], what: str, patience_s: float = PATIENCE_S) -> T:
    """Look again and again until there is something.

    Raises:
        TimeoutError: there never was.
    """
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        found = look()
        if found:
            return found
        time.sleep(0.01)
    raise TimeoutError(f"waited {patience_s:g} s for {what}")


def is_alive(pid: int) -> bool:
    """Whether a process runs; a dead one that waits for its parent does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def a_spec(*command: str, **fields: Any) -> JsonObject:
    """A launch's spec with everything that a test does not care about."""
    plain: JsonObject = {
        "key": "task",
        "domain": "test",
        "number": 1,
        "cwd": "/",
        "env": {},
        "payload": None,
        "timeout_s": 60.0,
    }
    return {**plain, "command": list(command), **fields}


def sh(script: str) -> tuple[str, ...]:
    """The command that runs a shell script."""
    return ("/bin/sh", "-c", script)


class RunnerClient:
    """One connection. Events that come while it waits for an answer are kept."""

    def __init__(self, path: str) -> None:
        self.events: list[JsonObject] = []
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(PATIENCE_S)
        try:
            self.socket.connect(path)
        except OSError:
            self.socket.close()
            raise
        self._file = self.socket.makefile("rb")
        self._last_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._file.close()
        self.socket.close()

    def ask(self, do: str, **fields: Any) -> JsonObject:
        """One command and its answer, whatever it says."""
        self._last_id += 1
        self.socket.sendall(json.dumps({"id": self._last_id, "do": do, **fields}).encode() + b"\n")
        while True:
            message = self.read()
            if "event" in message:
                self.events.append(message)
            elif message.get("id") == self._last_id:
                return message

    def must(self, do: str, **fields: Any) -> JsonObject:
        """One command that is granted."""
        answer = self.ask(do, **fields)
        assert answer["ok"], answer
        return answer

    def launch(self, attempt: str, spec: JsonObject, **fields: Any) -> JsonObject:
        defaults: JsonObject = {"run": "r", "epoch": 1, "valid_for_s": 60, "secrets": {}}
        return self.must("launch", **{**defaults, **fields}, attempt=attempt, spec=spec)

    def event(self, attempt: str, kind: str) -> JsonObject:
        """Wait for the first event of that type."""
        while True:
            for event in self.events:
                if event["attempt"] == attempt and event["type"] == kind:
                    return event
            message = self.read()
            if "event" in message:
                self.events.append(message)

    def end(self, attempt: str) -> JsonObject:
        return self.event(attempt, "ended")

    def run(self, attempt: str, *command: str, secrets: dict[str, str] | None = None, **fields: Any) -> JsonObject:
        """Launch, and wait for the end record."""
        self.launch(attempt, a_spec(*command, **fields), secrets=secrets or {})
        return self.end(attempt)

    def of(self, attempt: str) -> list[JsonObject]:
        return [event for event in self.events if event["attempt"] == attempt]

    def read(self) -> JsonObject:
        """The next line, whatever it is."""
        line = self._file.readline()
        if not line:
            raise ConnectionError("the runner closed the connection")
        return json.loads(line)


class RunnerSpool:
    """A spool folder and the runners that one starts in it."""

    def __init__(self, folder: Path, python: str = sys.executable) -> None:
        self.folder = folder
        self.python = python
        self.program, self.version = write_runner(folder)

    def command(self, *words: str) -> list[str]:
        return [self.python, "-I", "-S", str(self.program), *words]

    def start(self, idle_s: float = 600.0, **env: str) -> RunnerInfo:
        command = self.command("serve", "--spool", str(self.folder), "--idle", f"{idle_s:g}")
        env = {"PATH": os.defpath, **env}
        done = subprocess.run(command, capture_output=True, timeout=PATIENCE_S, check=False, env=env)
        assert done.returncode == 0, (done.stdout, done.stderr)
        return RunnerInfo(**json.loads(done.stdout))

    def client(self) -> RunnerClient:
        info = self.info()
        assert info is not None, "no runner"
        return RunnerClient(info.socket)

    def info(self) -> RunnerInfo | None:
        return runner_info(self.folder)

    def attempt(self, name: str) -> Path:
        return self.folder / "attempts" / name

    def journal(self, name: str) -> list[JsonObject]:
        return [json.loads(line) for line in (self.attempt(name) / "journal.jsonl").read_bytes().splitlines()]

    def log(self) -> str:
        return (self.folder / "runner.log").read_text()

    def kill(self) -> None:
        """kill -9, and wait until it is gone."""
        info = self.info()
        assert info is not None, "no runner"
        os.kill(info.pid, signal.SIGKILL)
        wait_until(lambda: not is_alive(info.pid), "the runner's death")

    def close(self) -> None:
        """End the runner with everything that it keeps."""
        info = self.info()
        if info is None:
            return
        os.kill(info.pid, signal.SIGTERM)
        wait_until(lambda: not is_alive(info.pid), "the runner's end")
