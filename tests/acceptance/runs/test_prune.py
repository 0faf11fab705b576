"""Making room: what goes, what stays, and what is said of it afterwards."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from tests.support.fleet import Fleet, wait_for

from evalfleet.core.retention import Part, Rules
from evalfleet.errors import Owned, WrongState
from evalfleet.operations.housekeeping.prune import LOCK, prune
from evalfleet.store.open import open_store

LEAVES = 'echo said; echo "$0" > "$EVALFLEET_ARTIFACTS/kept.txt"; ln -s /etc/passwd "$EVALFLEET_ARTIFACTS/link"'
WAITS = 'echo begun > "$LEDGER"; while [ ! -e "$GATE" ]; do sleep 0.02; done'
OLD = Rules(artifacts_s=1e-6, logs_s=1e-6)


def finished(fleet: Fleet, name: str = "done") -> Path:
    """A run of one task that is over. Returns the folder of its attempt."""
    path = fleet.tasks([{"key": "t", "command": ["bash", "-c", LEAVES, name]}], name=f"{name}.jsonl")
    assert fleet.command("run", path, "--name", name).returncode == 0
    [folder] = (fleet.home / "runs" / run_id(fleet, name)).glob("*/1")
    return folder


def run_id(fleet: Fleet, name: str) -> str:
    with closing(open_store(fleet.home)) as store:
        return store.runs.find(name).id


def test_artifacts_go_then_logs_and_the_verdict_stays(fleet: Fleet) -> None:
    folder = finished(fleet)
    before = fleet.json("report", "done")
    listed = fleet.command("prune", "--dry-run", "--artifacts", "1ms", "--logs", "1ms")
    assert "artifacts" in listed.stdout
    assert "would be removed: 3 files" in listed.stdout
    assert (folder / "artifacts" / "kept.txt").exists()

    assert fleet.json("prune", "--artifacts", "1ms")["files"] == 2  # and the link, not what it leads to
    assert Path("/etc/passwd").exists()
    assert not (folder / "artifacts").exists()
    assert "said" in fleet.command("logs", "done", "t").stdout
    assert fleet.json("prune", "done", "--what", "logs")["files"] == 1
    again = fleet.json("prune", "--artifacts", "1ms", "--logs", "1ms")
    assert (again["files"], again["removed"]) == (0, [])

    after = fleet.json("report", "done")
    assert (after["scores"], after["results"]) == (before["scores"], before["results"])
    assert [one["part"] for one in after["removed"]] == ["artifacts", "logs"]
    for words in (("logs", "done", "t"), ("artifacts", "done", "t"), ("report", "done")):
        done = fleet.command(*words)
        assert "removed by retention on 20" in done.stdout + done.stderr, words
    done = fleet.command("artifacts", "done", "t", "kept.txt")
    assert done.returncode == 2
    assert "artifacts of attempt 1 of task 't' were removed by retention on 20" in done.stderr


def test_a_pinned_run_stays(fleet: Fleet) -> None:
    folder = finished(fleet)
    assert fleet.json("pin", "done", "--reason", "paper")["pinned"] is True
    assert fleet.json("prune", "--artifacts", "1ms", "--runs", "1ms", "--size-gb", "0", "--count", "0")["removed"] == []
    refused = fleet.command("prune", "done")
    assert refused.returncode == 3
    assert "is pinned; nothing was removed" in refused.stderr
    assert fleet.json("report", "done")["pinned"] is True
    assert fleet.json("unpin", "done")["pinned"] is False
    assert fleet.command("unpin", "done").returncode == 3
    assert fleet.json("prune", "done")["files"] == 2
    assert folder.exists()


def test_a_run_that_goes_on_or_is_paused_stays(fleet: Fleet, tmp_path: Path) -> None:
    script = f"LEDGER={tmp_path}/begun; GATE={tmp_path}/gate; {WAITS}"
    process = fleet.start("run", fleet.tasks([{"key": "t", "command": ["bash", "-c", script]}]), "--name", "live")
    wait_for((tmp_path / "begun").exists, "the task")
    assert (
        fleet.json("prune", "--artifacts", "1ms", "--logs", "1ms", "--runs", "1ms", "--size-gb", "0")["removed"] == []
    )
    with pytest.raises(WrongState, match=r"is running, and not over"):
        prune(fleet.home, Rules(), runs=["live"])
    assert fleet.command("pause", "live").returncode == 0
    (tmp_path / "gate").touch()
    assert process.wait(60) in (0, 3)


def test_a_whole_run_goes_only_if_asked(fleet: Fleet) -> None:
    finished(fleet)
    gone = run_id(fleet, "done")
    finished(fleet, "other")
    assert fleet.json("prune", "done", "--what", "run")["removed"][0]["part"] == "run"
    assert not (fleet.home / "runs" / gone).exists()
    asked = fleet.command("report", gone)
    assert asked.returncode == 2
    assert "was removed by retention on 20" in asked.stderr
    assert [row["name"] for row in fleet.json("status")["runs"]] == ["other"]
    assert fleet.command("doctor", "--json").returncode in (0, 1)


def test_two_prunes_at_once_and_a_run_that_is_taken(fleet: Fleet) -> None:
    folder = finished(fleet)
    with closing(open_store(fleet.home)) as store:
        assert store.retention.lock(LOCK, "process 1 on here") is None
        with pytest.raises(Owned, match="process 1 on here is pruning"):
            prune(fleet.home, OLD)
        store.retention.unlock(LOCK)
        taken = store.runs.take(run_id(fleet, "done"), "a controller")
        spared = prune(fleet.home, OLD)
        assert spared.removed == []
        assert "is driven by a controller" in spared.spared[0].why
        store.runs.leave(taken)
    assert (folder / "artifacts" / "kept.txt").exists()


def test_a_reader_keeps_what_it_has_open(fleet: Fleet) -> None:
    folder = finished(fleet)
    with (folder / "stdout.log").open() as file:
        prune(fleet.home, OLD)
        assert file.read() == "said\n"


def test_a_prune_that_is_killed_is_gone_on_with(fleet: Fleet) -> None:
    folder = finished(fleet)
    for number in range(500):
        (folder / "artifacts" / f"{number}.bin").write_bytes(b"x")
    # Stopped by its own process in the middle of the files: nothing runs after SIGKILL.
    program = f"""
import os, signal
from pathlib import Path
from evalfleet.core.retention import Part, Rules
from evalfleet.operations.housekeeping.prune import prune
asked = iter(range(1000))
prune(Path({str(fleet.home)!r}), Rules(), runs=["done"], what=Part.RUN,
      stop=lambda: next(asked) == 100 and os.kill(os.getpid(), signal.SIGKILL) is None)
"""
    done = subprocess.run([sys.executable, "-c", program], check=False, env=dict(os.environ))
    assert done.returncode == -signal.SIGKILL
    left = len(list((folder / "artifacts").iterdir()))
    assert 0 < left < 500
    assert fleet.json("report", "done")["scores"]["verdicts"] == 1  # it is still there, and whole as far as it counts
    prune(fleet.home, Rules(), runs=["done"], what=Part.RUN)
    assert not folder.exists()
    assert fleet.command("report", "done").returncode == 2


def test_a_task_that_closed_its_folders_is_removed_too(fleet: Fleet) -> None:
    folder = finished(fleet)
    deep = folder / "artifacts" / "deep"
    deep.mkdir()
    (deep / "file").write_text("x")
    os.chmod(deep, 0o000)
    os.chmod(folder / "artifacts", 0o500)
    assert prune(fleet.home, Rules(), runs=["done"]).files == 3
    assert not deep.exists()
