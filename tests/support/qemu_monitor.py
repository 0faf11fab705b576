"""A real QEMU with a raw disk and no system on it, whose monitor is on a port, as in WAA's container."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from evalfleet.environments.vm.qmp import Qmp

QEMU = shutil.which("qemu-system-x86_64")
needs_qemu = pytest.mark.skipif(QEMU is None, reason="there is no QEMU: apt-get install qemu-system-x86")


class Machine:
    """One that runs."""

    def __init__(self, port: int, output: Path) -> None:
        self.port = port
        self._output = output

    def monitor(self, command: str, **arguments: Any) -> Any:
        with closing(Qmp(socket.create_connection(("127.0.0.1", self.port)), timeout_s=60)) as qmp:
            return qmp.execute(command, arguments, timeout_s=60)

    def write(self, pattern: int) -> None:
        """Let the machine write to its disk."""
        self._disk(f"write -P {pattern} 0 64k")

    def expect(self, pattern: int) -> None:
        """Read the disk; `mismatches` tells afterwards how often it was otherwise."""
        self._disk(f"read -P {pattern} 0 64k")

    def _disk(self, words: str) -> None:
        self.monitor("human-monitor-command", **{"command-line": f'qemu-io disk "{words}"'})

    def mismatches(self) -> int:
        """Of a machine that has ended."""
        return self._output.read_text().count("Pattern verification failed")


@contextmanager
def machine(folder: Path, *more: str) -> Iterator[Machine]:
    """Start one with these options; the disk is `folder/data.img`."""
    assert QEMU is not None
    disk, output = folder / "data.img", folder / "qemu.out"
    with disk.open("ab") as file:
        file.truncate(1 << 20)
    with socket.create_server(("127.0.0.1", 0)) as listener, output.open("w") as written:
        command = [
            *(QEMU, "-machine", "q35,accel=tcg", "-m", "32", "-display", "none", "-serial", "none", "-monitor", "none"),
            *("-drive", f"file={disk},format=raw,if=none,id=disk", "-device", "ide-hd,drive=disk"),
            *(
                "-chardev",
                f"socket,id=qmp,fd={listener.fileno()},server=on,wait=off",
                "-mon",
                "chardev=qmp,mode=control",
            ),
            *more,
        ]
        process = subprocess.Popen(command, stdout=written, stderr=written, pass_fds=[listener.fileno()])
        try:
            yield Machine(listener.getsockname()[1], output)
        finally:
            process.terminate()
            process.wait()
