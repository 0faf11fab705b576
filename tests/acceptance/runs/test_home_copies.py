"""Copies and moves of a home: a copy never touches what the original has outside of itself; a moved home goes on."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import pytest
from tests.support import sshd
from tests.support.fleet import Fleet, wait_for

# Waits for a word, then writes its result where it was told to.
TASK = """
echo "$1" >> "$LEDGER"
while [ ! -e "$GATE" ]; do sleep 0.02; done
echo '{"score": 0.25, "success": false}' > "$EVALFLEET_RESULT"
"""


def begin(fleet: Fleet, tmp_path: Path, count: int = 2, **options: object) -> None:
    """Start a run whose tasks wait for the gate, in the background."""
    script = f"LEDGER={tmp_path}/ledger; GATE={tmp_path}/gate; {TASK}"
    rows = [{"key": f"t_{turn}", "command": ["bash", "-c", script, "-", f"t_{turn}"]} for turn in range(count)]
    words = ["-w", str(count), *(f"--{name}={value}" for name, value in options.items())]
    fleet.start("run", fleet.tasks(rows), "--name", "r", *words)
    wait_for(lambda: len(lines(tmp_path)) == count, "the tasks")


def lines(tmp_path: Path) -> list[str]:
    path = tmp_path / "ledger"
    return path.read_text().splitlines() if path.exists() else []


def open_gate(tmp_path: Path) -> None:
    (tmp_path / "gate").touch()


def at(fleet: Fleet, home: Path) -> Fleet:
    return Fleet(folder=fleet.folder, home=home)


def copied(fleet: Fleet, tmp_path: Path) -> Fleet:
    shutil.copytree(fleet.home, tmp_path / "copy", symlinks=True)
    return at(fleet, tmp_path / "copy")


def test_a_copy_touches_nothing_of_the_original(fleet: Fleet, tmp_path: Path) -> None:
    begin(fleet, tmp_path)
    copy = copied(fleet, tmp_path)
    said = f"this home is a copy of {fleet.home}: the original is still there, and in use"
    steering = [
        ("resume", "r"),
        ("cancel", "r"),
        ("retry", "r"),
        ("hold", "r", "t_0"),
        ("reap",),
        ("serve", "--port", "0"),
    ]
    for words in (*steering, ("pool", "create", "p", "--hosts", "x.toml"), ("run", "tasks.jsonl")):
        done = copy.command(*words)
        assert (done.returncode, said in done.stderr) == (3, True), (words, done.stderr)
    adopting = copy.command("resume", "r", "--adopt")
    assert adopting.returncode == 3
    assert "in use" in adopting.stderr
    for words in (("status",), ("report", "r"), ("events", "r"), ("logs", "r", "t_0")):
        done = copy.command(*words)
        assert said in done.stderr, words
        assert done.returncode == 0, words
    problem = next(one for one in copy.json("doctor", code=3)["checks"] if one["name"] == "identity")
    assert said in problem["message"]
    open_gate(tmp_path)
    assert fleet.started[0].wait(60) == 0
    assert sorted(lines(tmp_path)) == ["t_0", "t_1"], "each was started once"
    assert not copy.left_processes()


def test_a_restored_home_takes_the_place_of_one_that_is_gone(fleet: Fleet, tmp_path: Path) -> None:
    begin(fleet, tmp_path)
    fleet.started[0].kill()
    fleet.started[0].wait()
    copy = copied(fleet, tmp_path)
    pid = fleet.runner_pid()
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    fleet.command("doctor", "--clean")
    wait_for(lambda: not fleet.left_processes(), "the end of the original")
    shutil.rmtree(fleet.home)
    refused = copy.command("resume", "r")
    assert refused.returncode == 3
    assert "the original is not there any more" in refused.stderr
    assert "--adopt" in refused.stderr
    open_gate(tmp_path)
    adopted = copy.command("resume", "r", "--adopt")
    assert adopted.returncode == 0, adopted.stderr
    assert "takes the place of" in adopted.stderr
    assert copy.json("report", "r")["tasks"]["done"] == 2
    again = copy.command("resume", "r")
    assert (again.returncode, "copy" in again.stderr) == (0, False)
    copy.close()


def test_a_home_is_moved_while_its_tasks_run(fleet: Fleet, tmp_path: Path) -> None:
    begin(fleet, tmp_path)
    fleet.started[0].kill()
    fleet.started[0].wait()
    fleet.home.rename(tmp_path / "moved")
    moved = at(fleet, tmp_path / "moved")
    resumed = moved.start("resume", "r")
    wait_for(lambda: moved.json("status", "r")["driven"], "the next controller")
    open_gate(tmp_path)
    said, _ = resumed.communicate(timeout=60)
    assert resumed.returncode == 0, said
    assert sorted(lines(tmp_path)) == ["t_0", "t_1"], "nothing ran twice"
    report = moved.json("report", "r")
    assert [row["score"] for row in report["results"]] == [0.25, 0.25], (
        "results were written where they were said to be"
    )
    assert moved.json("run", moved.tasks([{"key": "new", "command": ["true"]}], "new.jsonl"))["tasks"]["done"] == 1
    pid = moved.runner_pid()
    moved.close()
    wait_for(lambda: pid is None or not Path(f"/proc/{pid}").exists(), "the end of the runner")
    assert not os.path.lexists(fleet.home), "nothing is left in the old place"


def test_a_backup_that_is_restored_where_a_home_was_moved_away_stays_there(fleet: Fleet, tmp_path: Path) -> None:
    assert fleet.command("run", fleet.tasks([{"key": "a", "command": ["true"]}], "first.jsonl")).returncode == 0
    shutil.copytree(fleet.home, tmp_path / "backup", ignore=shutil.ignore_patterns("spool"))
    begin(fleet, tmp_path)
    bad = at(fleet, tmp_path / "home.bad")
    fleet.home.rename(bad.home)
    wait_for((fleet.home / "spool").is_symlink, "the link for the tasks")
    said, _ = fleet.started[0].communicate(timeout=60)
    assert (fleet.started[0].returncode, "where its home is now" in said) == (2, True), said
    assert [one.name for one in fleet.home.iterdir()] == ["spool"]
    refused = fleet.command("run", "first.jsonl")
    assert (refused.returncode, f"was moved to {bad.home}" in refused.stderr) == (3, True), refused.stderr
    was = (bad.home / "evalfleet.db").stat().st_ino
    shutil.copytree(tmp_path / "backup", fleet.home, dirs_exist_ok=True)
    assert (bad.home / "evalfleet.db").stat().st_ino == was
    assert "its tasks still run" in fleet.command("doctor", "--adopt").stderr
    assert len(bad.json("status")["runs"]) == 2, "nothing was written into it"
    open_gate(tmp_path)
    assert bad.command("resume", "r").returncode == 0
    assert [row["score"] for row in bad.json("report", "r")["results"]] == [0.25, 0.25]
    pid = bad.runner_pid()
    bad.close()
    wait_for(lambda: pid is None or not Path(f"/proc/{pid}").exists(), "the end of the runner")
    assert not os.path.lexists(fleet.home / "spool")
    assert fleet.command("doctor", "--adopt").returncode == 0
    assert len(fleet.json("status")["runs"]) == 1, "the restored home is still there"


def test_a_host_serves_the_home_that_took_the_place_and_not_the_original(fleet: Fleet, tmp_path: Path) -> None:
    with sshd.host(tmp_path / "hosts") as box:
        (fleet.folder / "hosts.toml").write_text(sshd.hosts_file([box]))
        assert fleet.command("pool", "create", "lab", "--hosts", "hosts.toml").returncode == 0
        begin(fleet, tmp_path, 1, pool="lab")
        fleet.started[0].kill()
        fleet.started[0].wait()
        copy = copied(fleet, tmp_path)
        adopted = copy.start("resume", "r", "--adopt")
        wait_for(lambda: copy.json("status", "r")["driven"], "the copy's controller")
        original = fleet.start("resume", "r")
        said = ""
        while "belongs to home" not in said:
            assert original.stdout is not None
            said = original.stdout.readline()
            assert said, "the original's controller ended without a word of it"
        original.kill()
        open_gate(tmp_path)
        words, _ = adopted.communicate(timeout=60)
        assert adopted.returncode == 0, words
        assert lines(tmp_path) == ["t_0"]


@pytest.mark.parametrize("how", ["database", "everything"])
def test_however_it_was_copied(fleet: Fleet, tmp_path: Path, how: str) -> None:
    assert fleet.command("run", fleet.tasks([{"key": "a", "command": ["true"]}])).returncode == 0
    copy = at(fleet, tmp_path / "copy")
    if how == "database":
        copy.home.mkdir()
        shutil.copy(fleet.home / "evalfleet.db", copy.home)
    else:
        shutil.copytree(fleet.home, copy.home)
    done = copy.command("resume")
    assert (done.returncode, "this home is a copy" in done.stderr) == (3, True)
    assert copy.command("doctor", "--adopt").returncode == 0
    assert copy.command("resume").returncode == 0
    copy.close()
