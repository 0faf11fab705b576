"""Pools of real SSH hosts, and people who use them: in a terminal, in a pipe, in a browser."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, TypeAlias

from tests.support import sshd
from tests.support.fleet import DEADLINE_S, Fleet
from tests.support.sshd import Sshd

Hosts: TypeAlias = Callable[..., list[Sshd]]
WITHOUT_SSH = {"PATH": "/nowhere"}


def hosts_at(folder: Path) -> Iterator[Hosts]:
    """Makes hosts, one for each letter."""
    made: list[Sshd] = []

    def make(names: str) -> list[Sshd]:
        sshd.require()
        key = sshd.make_key(folder / "user_key")
        made.extend(Sshd(folder / "hosts" / name, name, user_key=key) for name in names)
        return made

    yield make
    for host in made:
        host.close()


def pool(fleet: Fleet, hosts: list[Sshd], *more: str, name: str = "lab", **options: object) -> None:
    path = fleet.folder / f"{name}.toml"
    path.write_text(sshd.hosts_file(hosts, **options))
    done = fleet.command("pool", "create", name, "--backend", "ssh", "--hosts", str(path), *more)
    assert done.returncode == 0, done.stderr


def begun(fleet: Fleet, *args: str, **streams: Any) -> subprocess.Popen[bytes]:
    """A command whose streams are not mixed, and are bytes."""
    env = fleet.environment(**streams.pop("env", {}))
    command = [sys.executable, "-m", "evalfleet", *args]
    made: Any = subprocess.Popen(
        command, env=env, cwd=fleet.folder, **streams
    )  # which type it has, depends on the streams
    return made


def left_by_its_reader(fleet: Fleet, *args: str, then: Callable[[], object] = bool) -> tuple[int, bytes]:
    """Read one line of what a command prints, and go away; its exit code, and what it says."""
    process = begun(fleet, *args, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    then()
    said = process.stderr.read()
    process.stderr.close()
    return process.wait(DEADLINE_S), said


def until(output: IO[str], lines: list[str], words: str) -> None:
    while True:
        line = output.readline()
        assert line, f"no {words!r} in {lines}"
        lines.append(line)
        if words in line:
            return


class Terminal:
    """A command in a terminal of its own, and somebody who types there."""

    def __init__(self, fleet: Fleet, *args: str, env: dict[str, str]) -> None:
        self._mine, theirs = pty.openpty()
        self.seen = ""
        self.resize(30, 90)
        self.before = termios.tcgetattr(theirs)
        self._theirs = theirs
        self._process = begun(
            fleet, *args, env={"TERM": "xterm", **env}, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )  # fmt: skip

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._mine)
        os.close(self._theirs)

    def type(self, text: str) -> None:
        os.write(self._mine, text.encode())

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self._mine, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def modes(self) -> list[Any]:
        return termios.tcgetattr(self._theirs)

    def expect(self, pattern: str, limit_s: float = DEADLINE_S) -> bool:
        """Wait until it is seen; what is seen up to there is forgotten."""
        deadline = time.monotonic() + limit_s
        while not (found := re.search(pattern, self.seen)):
            if time.monotonic() > deadline:
                assert limit_s < DEADLINE_S, f"no {pattern!r} in {self.seen!r}"
                return False
            if select.select([self._mine], [], [], 0.1)[0]:
                self.seen += os.read(self._mine, 65536).decode(errors="replace")
        self.seen = self.seen[found.end() :]
        return True

    def until(self, text: str, pattern: str) -> None:
        """Type it, more than once if need be: nobody tells when a signal has arrived."""
        for _ in range(30):
            self.type(text)
            if self.expect(pattern, 1.0):
                return
        raise AssertionError(f"no {pattern!r} in {self.seen!r}")

    def wait(self) -> int:
        deadline = time.monotonic() + DEADLINE_S
        while self._process.poll() is None:
            assert time.monotonic() < deadline, self.seen
            if select.select([self._mine], [], [], 0.1)[0]:
                self.seen += os.read(self._mine, 65536).decode(errors="replace")
        return self._process.returncode
