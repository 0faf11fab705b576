"""A controller of this version and a runner of an older one, with work on it."""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from tests.support.fleet import Fleet, wait_for

ROOT = Path(__file__).parents[3]
OLD = "a6a2999"
# Two tasks: one that ended when nobody drove the run, and one that still runs when the new controller comes.
WORK = """
import json, os, sys, time
from pathlib import Path
open(sys.argv[1], "a").write(sys.argv[2] + chr(10))
while not Path(sys.argv[3]).exists():
    time.sleep(0.02)
Path(os.environ["EVALFLEET_ARTIFACTS"], "note.txt").write_text("from the old runner")
json.dump({"score": 0.25, "steps": 3}, open(os.environ["EVALFLEET_RESULT"], "w"))
"""


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """The program of an older version, as its commit has it."""
    archive = subprocess.run(["git", "archive", OLD, "src"], cwd=ROOT, capture_output=True, check=False)
    if archive.returncode != 0:
        pytest.skip(f"this source tree has no history with {OLD}")
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as file:
        file.extractall(tmp_path / "old", filter="data")
    return tmp_path / "old" / "src"


def test_attempts_under_an_older_runner_are_collected(fleet: Fleet, old: Path, tmp_path: Path) -> None:
    gates = {key: tmp_path / f"gate_{key}" for key in ("ended", "live")}
    rows = [
        {"key": key, "command": [sys.executable, "-c", WORK, str(fleet.ledger), key, str(gate)]}
        for key, gate in gates.items()
    ]
    tasks = fleet.tasks(rows)
    # The libraries are those of today; `-P` keeps today's evalfleet out of the way.
    program = f"import sys; sys.path.insert(0, {str(old)!r}); from evalfleet.cli.main import main; main()"
    command = [sys.executable, "-P", "-c", program, "--home", str(fleet.home), "run", tasks, "--workers", "2", "--json"]
    with (tmp_path / "said").open("w") as said:
        process = subprocess.Popen(command, stdout=said, stderr=said, cwd=fleet.folder, start_new_session=True)
    try:
        wait_for(lambda: sorted(fleet.lines()) == ["ended", "live"], f"both tasks: {(tmp_path / 'said').read_text()}")
    finally:
        process.kill()
        process.wait()
    runner = fleet.runner_pid()
    gates["ended"].touch()
    wait_for(
        lambda: b"ended" in b"".join(one.read_bytes() for one in fleet.home.glob("spool/attempts/*/journal.jsonl")),
        "its end",
    )

    resumed = fleet.start("resume", "latest", "--json")
    wait_for(lambda: _states(fleet).get("ended") == "done", "what the old runner kept for the new controller")
    assert fleet.runner_pid() == runner
    gates["live"].touch()
    answer, _ = resumed.communicate(timeout=60)

    assert resumed.returncode == 0, answer
    results = {row["key"]: row for row in fleet.json("report", "latest")["results"]}
    assert {key: (row["state"], row["score"], row["attempts"]) for key, row in results.items()} == {
        "ended": ("done", 0.25, 1),
        "live": ("done", 0.25, 1),
    }
    assert sorted(fleet.lines()) == ["ended", "live"], "nothing ran twice"
    assert len(list(fleet.home.rglob("artifacts/note.txt"))) == 2


def _states(fleet: Fleet) -> dict[str, str]:
    return {row["key"]: row["state"] for row in fleet.json("tasks", "latest")["tasks"]}
