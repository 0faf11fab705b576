"""A test that fails leaves nothing of its home running."""

from __future__ import annotations

import os
import signal
from contextlib import contextmanager
from pathlib import Path

from tests.support.fleet import fleet_at, wait_for


def test_what_a_killed_runner_left_is_ended_with_the_fleet(tmp_path: Path):
    with contextmanager(fleet_at)(tmp_path) as fleet:
        loop = {"key": "loop", "command": ["sh", "-c", "touch begun; while :; do sleep 0.05; done"]}
        controller = fleet.start("run", fleet.tasks([loop]))
        wait_for((fleet.folder / "begun").exists, "the task")
        pid = fleet.runner_pid()
        assert pid is not None
        controller.kill()
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: not any(left.startswith(f"{pid} ") for left in fleet.left_processes()), "the runner's end")
        assert fleet.left_processes()
    assert fleet.left_processes() == []
