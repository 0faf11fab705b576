"""The program in WAA's container: which QEMU it takes for the container's own."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tests.support.fleet import wait_for

from evalfleet.benchmarks.waa.in_container import machine_runs

PORT = 61  # of no monitor of a real machine


def test_only_the_machine_with_our_monitor_is_ours(tmp_path: Path) -> None:
    shell = shutil.which("bash")
    assert shell is not None
    qemu = tmp_path / "qemu-system-x86_64"
    qemu.symlink_to(shell)
    monitor = f"tcp:0.0.0.0:{PORT},server,nowait"
    with subprocess.Popen([qemu, "-c", "read -r line", "-qmp", monitor], stdin=subprocess.PIPE) as process:
        wait_for(lambda: machine_runs(PORT), "the process to be there")
        assert not machine_runs(PORT + 1)
        assert process.stdin is not None
        process.stdin.close()
    assert not machine_runs(PORT)
