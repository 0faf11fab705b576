"""The program for people with an account, against the emulator: it holds there, and leaves nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.rented import rented

SCRIPT = Path(__file__).parents[3] / "scripts" / "real_azure.py"


@pytest.mark.long
def test_every_assumption_holds_on_the_emulator(tmp_path: Path) -> None:
    with rented(tmp_path, 100) as here:
        folder = tmp_path / "trial"
        command = [sys.executable, SCRIPT, "--yes", "--folder", folder, "--task-seconds", "1"]
        done = subprocess.run(
            command, env=here.fleet.environment(), capture_output=True, text=True, timeout=400, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        rows = json.loads((folder / "report.json").read_text())
        assert len(rows) == 11
        assert (folder / "report.md").read_text().startswith("# evalfleet on Azure: 11 of 11 assumptions hold")
        assert here.is_empty(), here.leaks()
