"""A home, a folder with task programs, and the command line as a person uses it: real processes, real files."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evalfleet.answers.base import SCHEMA
from evalfleet.cli.main import run as cli

DEADLINE_S = 60.0
READS = ("report", "tasks", "logs")  # commands that `test_read_commands` holds as processes


def wait_for(condition: Callable[[], Any], what: str, deadline_s: float = DEADLINE_S) -> Any:
    """Ask until it holds; a deadline far away is no luck, only a bound.

    It asks less often the longer it takes, and pauses as long as the question took: a question may start a process, and what is
    waited for needs the processor.
    """
    began = time.monotonic()
    while True:
        asked = time.monotonic()
        value = condition()
        if value:
            return value
        now = time.monotonic()
        assert now < began + deadline_s, f"waited {deadline_s:.0f} s for {what}"
        time.sleep(min(max(0.02, now - asked, (now - began) / 10), 0.25))


@dataclass
class Fleet:
    folder: Path
    home: Path
    env: dict[str, str] = field(default_factory=dict)
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    @property
    def ledger(self) -> Path:
        """Tasks append a line here, so that executions are counted by somebody who is not evalfleet."""
        return self.folder / "ledger"

    def lines(self) -> list[str]:
        return self.ledger.read_text().splitlines() if self.ledger.exists() else []

    def tasks(self, tasks: list[dict[str, Any]], name: str = "tasks.jsonl", **run: Any) -> str:
        rows = [{"run": run}] if run else []
        path = self.folder / name
        path.write_text("".join(json.dumps(row) + "\n" for row in [*rows, *tasks]))
        return str(path)

    def command(self, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        return subprocess.run(
            self._argv(args),
            env=self._env(env),
            cwd=self.folder,
            text=True,
            capture_output=True,
            timeout=DEADLINE_S,
            check=False,
        )

    def json(self, *args: str, code: int = 0, **env: str) -> Any:
        done = self._read(*args, "--json") if args[0] in READS and not env else self.command(*args, "--json", **env)
        assert done.returncode == code, done.stderr + done.stdout
        answer = json.loads(done.stdout)
        assert answer.pop("schema") == SCHEMA
        return answer

    def start(self, *args: str, **env: str) -> subprocess.Popen[str]:
        """Start a command in the background."""
        process = subprocess.Popen(
            self._argv(args),
            env=self._env(env),
            cwd=self.folder,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self.started.append(process)
        return process

    def _read(self, *args: str) -> subprocess.CompletedProcess[str]:
        """Run a command that only reads, in this process: its start costs ten times as much as what it reads."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = cli(["--home", str(self.home), *args])
        return subprocess.CompletedProcess(args, code, out.getvalue(), err.getvalue())

    def events(self, run: str = "latest") -> list[dict[str, Any]]:
        done = self._read("events", run, "--json")
        return [json.loads(line) for line in done.stdout.splitlines()]

    def runner_pid(self) -> int | None:
        try:
            return json.loads((self.home / "spool" / "runner.json").read_text())["pid"]
        except (FileNotFoundError, ValueError):
            return None

    def left_processes(self) -> list[str]:
        """Processes of this home: its runner, and whatever still carries an attempt's marker."""
        marker = str(self.home).encode()
        found: list[str] = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                with contextlib.suppress(OSError):
                    environ = (entry / "environ").read_bytes()
                    command = (entry / "cmdline").read_bytes()
                    if (b"EVALFLEET_ATTEMPT=" in environ or b"runner-" in command) and marker in environ + command:
                        found.append(f"{entry.name} {command.decode(errors='replace')}")
        return found

    def controllers(self) -> list[int]:
        """Processes that `evalfleet serve` started to drive runs and keep pools of this home; they outlive it."""
        wanted = f"EVALFLEET_HOME={self.home}".encode()
        found: list[int] = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    command = (entry / "cmdline").read_bytes()
                    ours = b"evalfleet\0resume\0" in command or b"evalfleet\0pool\0settle\0" in command
                    if ours and wanted in (entry / "environ").read_bytes().split(b"\0"):
                        found.append(int(entry.name))
        return found

    def close(self) -> None:
        for process in self.started:
            if process.poll() is None:
                process.kill()
                process.wait()
            if process.stdout is not None:
                process.stdout.close()
        for pid in self.controllers():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        pid = self.runner_pid()
        left = self.left_processes()
        if any(int(one.split()[0]) == pid for one in left):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid or 0, signal.SIGTERM)
        elif left:  # a test killed it and did not come to start another
            self._end_left_processes()
        try:
            wait_for(lambda: not self.left_processes(), f"the end of {self.left_processes()}")
        except AssertionError:
            self._end_left_processes()  # a test that failed must not leave loops behind that burn for days
            raise

    def _end_left_processes(self) -> None:
        """End what this home started, where its runner is not there to do it."""
        for left in self.left_processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(left.split()[0]), signal.SIGKILL)

    def _argv(self, args: tuple[str, ...]) -> list[str]:
        return [sys.executable, "-m", "evalfleet", *args]

    def environment(self, **more: str) -> dict[str, str]:
        """What commands are started with."""
        return self._env(more)

    def _env(self, more: dict[str, str]) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        return {**kept, "HOME": str(self.folder), "EVALFLEET_HOME": str(self.home), **self.env, **more}


def fleet_at(path: Path) -> Iterator[Fleet]:
    folder = path / "work"
    folder.mkdir()
    fleet = Fleet(folder=folder, home=path / "home")
    try:
        yield fleet
    finally:
        fleet.close()
