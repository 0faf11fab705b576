"""A controller of this version and a runner of an older one, with work on it."""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.support.fleet import Fleet, wait_for

ROOT = Path(__file__).parents[3]
OLD = "a6a2999"
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


@contextmanager
def driven(fleet: Fleet, old: Path, tmp_path: Path, keys: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    """A run that a controller of the older version drives, with all of its tasks at work."""
    rows = [
        {"key": key, "command": [sys.executable, "-c", WORK, str(fleet.ledger), key, str(gate(tmp_path, key))]}
        for key in keys
    ]
    tasks = fleet.tasks(rows)
    # The libraries are those of today; `-P` keeps today's evalfleet out of the way.
    program = f"import sys; sys.path.insert(0, {str(old)!r}); from evalfleet.cli.main import main; main()"
    command = [sys.executable, "-P", "-c", program, "--home", str(fleet.home), "run", tasks, "--workers", "2", "--json"]
    with (tmp_path / "said").open("w") as said:
        process = subprocess.Popen(command, stdout=said, stderr=said, cwd=fleet.folder, start_new_session=True)
    try:
        wait_for(lambda: sorted(fleet.lines()) == sorted(keys), f"all tasks: {(tmp_path / 'said').read_text()}")
        yield process
    finally:
        process.kill()
        process.wait()


def gate(tmp_path: Path, key: str) -> Path:
    return tmp_path / f"gate_{key}"


def test_attempts_under_an_older_runner_are_collected(fleet: Fleet, old: Path, tmp_path: Path) -> None:
    with driven(fleet, old, tmp_path, ["ended", "live"]):
        pass
    runner = fleet.runner_pid()
    gate(tmp_path, "ended").touch()
    journals = "spool/attempts/*/journal.jsonl"
    wait_for(lambda: b"ended" in b"".join(one.read_bytes() for one in fleet.home.glob(journals)), "its end")

    resumed = fleet.start("resume", "latest", "--json")
    wait_for(lambda: _states(fleet).get("ended") == "done", "what the old runner kept for the new controller")
    assert fleet.runner_pid() == runner
    gate(tmp_path, "live").touch()
    answer, _ = resumed.communicate(timeout=60)

    assert resumed.returncode == 0, answer
    _assert_collected(fleet, "latest", ["ended", "live"])


def test_a_home_that_is_migrated_under_an_older_controller_loses_nothing(
    fleet: Fleet, old: Path, tmp_path: Path
) -> None:
    """The older controller cannot write into the new schema: it must end, and its attempts wait for the next controller."""
    with driven(fleet, old, tmp_path, ["a", "b"]) as controller:
        run = fleet.events()[0]["run"]
        assert fleet.command("run", fleet.tasks([{"key": "new", "command": ["true"]}], "new.jsonl")).returncode == 0
        for key in ("a", "b"):
            gate(tmp_path, key).touch()
        wait_for(lambda: controller.poll() is not None, "the end of the older controller")
        assert controller.returncode != 0
    assert fleet.command("resume", run).returncode == 0
    _assert_collected(fleet, run, ["a", "b"])


def _assert_collected(fleet: Fleet, run: str, keys: Sequence[str]) -> None:
    results = {row["key"]: row for row in fleet.json("report", run)["results"]}
    told = {key: (row["state"], row["score"], row["attempts"]) for key, row in results.items()}
    assert told == dict.fromkeys(keys, ("done", 0.25, 1))
    assert sorted(fleet.lines()) == sorted(keys), "nothing ran twice"
    assert len(list(fleet.home.rglob("artifacts/note.txt"))) == len(keys)


def _states(fleet: Fleet) -> dict[str, str]:
    return {row["key"]: row["state"] for row in fleet.json("tasks", "latest")["tasks"]}
