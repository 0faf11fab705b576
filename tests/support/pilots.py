"""Real pilots with real runners, as processes of this machine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import anyio
from tests.support.fleet import wait_for

from evalfleet.errors import HostUnreachable
from evalfleet.hosts.local.launcher import runner_info
from evalfleet.hosts.mailbox.backend import MailboxBackend
from evalfleet.hosts.mailbox.boxes import Box
from evalfleet.hosts.mailbox.home_key import home_identity
from evalfleet.hosts.mailbox.pilot_files import build_pilot, pilot_arguments
from evalfleet.layout import Home
from evalfleet.pilot.__main__ import BOX, TOKEN


class PilotProcess:
    """A node: the pilot, its runner, and what that has started."""

    def __init__(self, process: subprocess.Popen[bytes], folder: Path) -> None:
        self.process = process
        self.folder = folder

    def log(self) -> str:
        return (self.folder / "log").read_text()

    def kill(self) -> None:
        """The node is lost: everything on it ends without a word."""
        self.process.kill()
        self.process.wait()
        runner = runner_info(self.folder / "state" / "spool")
        if runner is not None:
            for pid in (*_below(runner.pid), runner.pid):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            wait_for(lambda: runner_info(self.folder / "state" / "spool") is None, "the runner's end")


def start_pilot(
    home: Home, box: Box, folder: Path, *, slots: int = 2, token: str | None = None, grant: str | None = None
) -> PilotProcess:
    """Start a pilot with its own folder. Another token or grant than its own makes it a thief."""
    identity = home_identity(home)
    folder.mkdir(exist_ok=True)
    (folder / "state").mkdir(mode=0o700, exist_ok=True)
    program = folder / "pilot.pyz"
    program.write_bytes(build_pilot())
    words = pilot_arguments(box, controller=identity.public.text, slots=slots)
    environment = {
        **{name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR", "XDG_RUNTIME_DIR") if name in os.environ},
        "EVALFLEET_SLOT_LOCKS": str(folder / "locks"),
        "EVALFLEET_GPU_LOCKS": str(folder / "gpu-locks"),
        BOX: grant or box.grant,
        TOKEN: token or identity.token(box.host, box.generation),
    }
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, program, *words, "--folder", folder / "state"], env=environment, stderr=log
        )
    return PilotProcess(process, folder)


@contextmanager
def pilot(home: Home, box: Box, folder: Path, *, slots: int = 2) -> Iterator[PilotProcess]:
    """Hold a node inside the block."""
    node = start_pilot(home, box, folder, slots=slots)
    try:
        yield node
    finally:
        node.kill()


async def said_hello(backend: MailboxBackend, limit_s: float = 60.0) -> MailboxBackend:
    """Wait until the backend's pilot is there."""
    with anyio.fail_after(limit_s):
        while True:
            with suppress(HostUnreachable):
                await backend.facts()
                return backend
            await anyio.sleep(0.05)


def in_an_hour() -> float:
    return time.time() + 3600.0


def _below(pid: int) -> list[int]:
    """All processes that a process has started, deepest first."""
    with suppress(OSError):
        children = [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
        return [*(deep for child in children for deep in _below(child)), *children]
    return []
