"""`evalfleet doctor`: what it finds on real homes with real leftovers, and what `--clean` ends and leaves alone."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.fleet import Fleet, fleet_at, wait_for
from tests.support.runner import RunnerSpool, a_spec, is_alive
from tests.support.store import cases

from evalfleet.cli.home.shared import doctor_checks
from evalfleet.hosts.local import orphans
from evalfleet.store.open import open_store

NAMES = ["python", "sqlite", "home", "file system", "disk", "open files", "database", "spool", "write lock"]
NAMES += ["runner python", "socket folder", "runner", "processes"]
FOREVER = "echo $$ >> ledger; sleep 600 & echo $! >> ledger; wait"


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Fleet]:
    """Another home on the same machine."""
    path = tmp_path / "other"
    path.mkdir()
    yield from fleet_at(path)


def levels(answer: dict[str, Any]) -> dict[str, str]:
    """By name; the worst where a name stands twice."""
    order = ["ok", "warning", "problem"]
    found: dict[str, str] = {}
    for check in answer["checks"]:
        found[check["name"]] = max(found.get(check["name"], "ok"), check["level"], key=order.index)
    return found


def said(answer: dict[str, Any], name: str) -> str:
    return "\n".join(f"{one['message']} → {one['remedy']}" for one in answer["checks"] if one["name"] == name)


def with_endless_tasks(fleet: Fleet) -> list[int]:
    """Two tasks of two processes each go on without their controller; returns the processes."""
    process = fleet.start("run", fleet.tasks([{"key": k, "command": ["sh", "-c", FOREVER]} for k in "ab"]), "-w", "2")
    wait_for(lambda: len(fleet.lines()) == 4, "the tasks")
    process.kill()
    process.wait()
    return [int(line) for line in fleet.lines()]


def kill_runner(fleet: Fleet) -> None:
    pid = fleet.runner_pid()
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not is_alive(pid), "the runner's death")


def contents(folder: Path) -> dict[str, bytes]:
    """All files but SQLite's own index of a log, which every reader makes."""
    kept = (path for path in folder.rglob("*") if path.is_file() and not path.name.endswith(("-shm", "-wal")))
    return {str(path): path.read_bytes() for path in kept}


def test_a_home_that_does_not_exist_yet(fleet: Fleet):
    answer = fleet.json("doctor")
    assert answer["healthy"] is True
    assert set(NAMES) - set(levels(answer)) == set()
    assert "problem" not in levels(answer).values()
    assert not fleet.home.exists()


def test_a_healthy_home_is_not_touched(fleet: Fleet):
    fleet.json("run", fleet.tasks([{"key": "a", "command": ["true"]}]))
    before = contents(fleet.home)
    answer = fleet.json("doctor")
    assert {*levels(answer).values()} <= {"ok", "warning"}
    assert [name for name in ("database", "runs", "spool", "clock", "processes") if levels(answer)[name] != "ok"] == []
    assert contents(fleet.home) == before


def test_words_for_people(fleet: Fleet):
    done = fleet.command("doctor")
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert "\x1b" not in done.stdout
    assert lines[0].startswith("ok       python         3.")
    assert lines[-1].startswith("no problem, ")
    columns = {line.index("→") for line in lines if line.lstrip().startswith("→")}
    assert columns <= {24}


def test_it_is_quick(fleet: Fleet):
    taken: list[float] = []
    while len(taken) < 20 and min(taken, default=9.0) >= 1.0:  # noise only ever adds
        begun = time.monotonic()
        fleet.command("doctor")
        taken.append(time.monotonic() - begun)
    assert min(taken) < 1.0


# Leftovers


def test_tasks_that_nobody_drives_are_a_warning(fleet: Fleet):
    pids = with_endless_tasks(fleet)
    answer = fleet.json("doctor")
    run = fleet.json("status")["runs"][0]["run"]
    assert levels(answer)["runs"] == "warning"
    assert f"no controller drives run {run}; 2 tasks of it still run → evalfleet resume {run} " in said(answer, "runs")
    assert "2 live attempts" in said(answer, "runner")
    # A runner with work is no leftover.
    assert fleet.json("doctor", "--clean")["cleaned"] == []
    assert all(is_alive(pid) for pid in pids)
    assert fleet.command("cancel").returncode == 0
    assert "problem" not in levels(fleet.json("doctor")).values()


def test_orphaned_processes_are_ended_and_those_of_another_home_are_not(fleet: Fleet, other: Fleet):
    ours, theirs = with_endless_tasks(fleet), with_endless_tasks(other)
    kill_runner(fleet)
    kill_runner(other)
    try:
        answer = fleet.json("doctor", code=3)
        assert "4 processes of 2 attempts" in said(answer, "processes")
        assert "doctor --clean" in said(answer, "processes")
        assert levels(answer)["spool"] == "warning"
        assert all(map(is_alive, ours))  # it only looked

        cleaned = fleet.json("doctor", "--clean")
        assert sorted(int(line.split()[2]) for line in cleaned["cleaned"]) == sorted(ours)
        assert levels(cleaned)["processes"] == "ok"
        assert not any(map(is_alive, ours))
        assert all(map(is_alive, theirs))
        assert fleet.json("doctor", "--clean")["cleaned"] == []
    finally:
        other.command("doctor", "--clean")
    assert not any(map(is_alive, theirs))
    # What was ended was lost already; the next controller says so and runs the tasks again.
    assert fleet.command("cancel").returncode == 0
    assert other.command("cancel").returncode == 0


def test_orphans_are_found_without_a_database(fleet: Fleet):
    pids = with_endless_tasks(fleet)
    kill_runner(fleet)
    for path in fleet.home.glob("evalfleet.db*"):
        path.write_bytes(b"nonsense")
    answer = fleet.json("doctor", "--clean", code=3)
    assert levels(answer)["database"] == "problem"
    assert len(answer["cleaned"]) == 4
    assert not any(map(is_alive, pids))


def test_a_runner_whose_spool_was_removed(fleet: Fleet):
    pids = with_endless_tasks(fleet)
    runner = fleet.runner_pid()
    assert runner is not None
    shutil.rmtree(fleet.home)
    answer = fleet.json("doctor", code=3)
    assert f"process {runner}" in said(answer, "processes")
    cleaned = fleet.json("doctor", "--clean")
    assert any(f"process {runner} " in line for line in cleaned["cleaned"])
    assert not any(map(is_alive, [runner, *pids]))


def test_an_idle_runner_is_ended_only_by_clean(fleet: Fleet):
    spool = RunnerSpool(fleet.home / "spool")
    info = spool.start()
    try:
        answer = fleet.json("doctor")
        assert levels(answer)["runner"] == "ok"
        assert f"process {info.pid}, version {info.version}, idle" in said(answer, "runner")
        with spool.client() as client:  # somebody is connected, so it is needed
            client.must("ping")
            assert fleet.json("doctor", "--clean")["cleaned"] == []
        assert is_alive(info.pid)
        assert fleet.json("doctor", "--clean")["cleaned"] == [f"ended the idle runner, process {info.pid}"]
        assert not is_alive(info.pid)
    finally:
        spool.close()


def test_a_silent_runner_is_no_proof_of_orphans(fleet: Fleet):
    spool = RunnerSpool(fleet.home / "spool")
    info = spool.start()
    try:
        with spool.client() as client:
            client.launch("r.1.1", a_spec("sleep", "600"))
            task = client.event("r.1.1", "started")["pid"]
        os.kill(info.pid, signal.SIGSTOP)
        answer = fleet.json("doctor", "--clean")
        assert "does not answer" in said(answer, "runner")
        assert (levels(answer)["runner"], answer["cleaned"]) == ("warning", [])
        assert is_alive(task)
    finally:
        os.kill(info.pid, signal.SIGCONT)
        spool.close()


def test_results_that_wait_in_the_spool(fleet: Fleet):
    spool = RunnerSpool(fleet.home / "spool")
    spool.start()
    try:
        with spool.client() as client:
            client.run("nobody.1.1", "true")
            answer = fleet.json("doctor")
        assert "1 attempt of run nobody waits to be collected" in said(answer, "spool")
    finally:
        spool.close()


def test_nobody_but_the_very_process_is_ended(tmp_path: Path):
    spool = tmp_path / "spool"
    folder = spool / "attempts" / "r.1.1"
    mark = {"EVALFLEET_ATTEMPT": "r.1.1", "EVALFLEET_TASK": f"{folder}/task.json"}
    process = subprocess.Popen(["sleep", "600"], env={"PATH": os.defpath, **mark})
    try:
        (orphan,) = wait_for(lambda: orphans.orphans(spool), "the process")
        assert (orphan.pid, orphan.attempt) == (process.pid, "r.1.1")
        later = orphans.StrayProcess(pid=process.pid, start_time=orphan.start_time + 1, attempt="r.1.1", command="")
        unmarked = orphans.StrayProcess(pid=process.pid, start_time=orphan.start_time, attempt="r.1.2", command="")
        assert not orphans.end(later, spool)
        assert not orphans.end(unmarked, spool)
        assert not orphans.end(orphan, tmp_path / "elsewhere")
        assert orphans.orphans(tmp_path / "spo") == []
        assert process.poll() is None
        assert orphans.end(orphan, spool)
        assert process.wait(30) == -signal.SIGKILL
    finally:
        process.kill()
        process.wait()


def test_who_holds_the_write_lock(fleet: Fleet):
    fleet.json("run", fleet.tasks([{"key": "a", "command": ["true"]}]))
    with (fleet.home / "write.lock").open("rb+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        answer = fleet.json("doctor")
    assert levels(answer)["write lock"] == "warning"
    assert f"kill {os.getpid()}" in said(answer, "write lock")


# Broken homes


@pytest.fixture
def stored(fleet: Fleet) -> Fleet:
    fleet.json("run", fleet.tasks([{"key": f"t_{n}", "command": ["true"]} for n in range(20)]), "-w", "4")
    with sqlite3.connect(fleet.home / "evalfleet.db") as connection:
        connection.execute("pragma wal_checkpoint(truncate)")
    connection.close()
    return fleet


def cut(path: Path) -> None:
    os.truncate(path, 5000)


def emptied(path: Path) -> None:
    os.truncate(path, 0)


def overwritten(path: Path) -> None:
    path.write_bytes(b"x" * 5000)


def too_new(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("pragma user_version = 99")
    connection.close()


def spoiled_inside(path: Path) -> None:
    """Every page but the first is garbage, so it opens and cannot be read."""
    with path.open("rb+") as file:
        file.seek(4096)
        file.write(os.urandom(path.stat().st_size - 4096))


@pytest.mark.parametrize("damage", [cut, emptied, overwritten, too_new, spoiled_inside])
def test_a_database_that_cannot_be_used(stored: Fleet, damage: Any):
    damage(stored.home / "evalfleet.db")
    before = contents(stored.home)
    answer = stored.json("doctor", code=3)
    assert levels(answer)["database"] == "problem"
    database = next(check for check in answer["checks"] if check["name"] == "database")
    assert "evalfleet.db" in database["message"]
    assert database["remedy"]
    assert [name for name, level in levels(answer).items() if level == "problem"] == ["database"]
    assert contents(stored.home) == before


def test_damage_that_no_reader_meets(stored: Fleet):
    """One page of an index is garbage: everything still opens, and the check of all pages tells."""
    path = stored.home / "evalfleet.db"
    connection = sqlite3.connect(path)
    (page,) = connection.execute("select rootpage from sqlite_schema where name = 'task_history'").fetchone()
    connection.close()
    with path.open("rb+") as file:
        file.seek((page - 1) * 4096)
        file.write(b"\xff" * 4096)
    answer = stored.json("doctor", code=3)
    assert "damaged" in said(answer, "database")


def test_broken_settings(fleet: Fleet):
    fleet.home.mkdir()
    (fleet.home / "config.toml").write_text("[nonsense")
    answer = fleet.json("doctor", code=3)
    assert "config.toml" in said(answer, "settings")
    assert levels(answer)["database"] == "ok"


def test_a_home_that_is_a_file(fleet: Fleet):
    fleet.home.write_text("")
    answer = fleet.json("doctor", code=3)
    fleet.home.unlink()
    assert "is not a folder" in said(answer, "home")


@pytest.mark.parametrize("python", ["/no/such/python", "/bin/false", "/bin/echo"])
def test_a_runner_python_that_does_not_work(fleet: Fleet, python: str):
    answer = fleet.json("doctor", code=3, EVALFLEET_RUNNER_PYTHON=python)
    assert f"{python} cannot be used" in said(answer, "runner python")


def test_a_socket_folder_that_is_open_to_others(fleet: Fleet):
    with tempfile.TemporaryDirectory(dir="/tmp") as runtime:  # a long path is not used for sockets
        (Path(runtime) / "evalfleet").mkdir(mode=0o755)
        answer = fleet.json("doctor", code=3, XDG_RUNTIME_DIR=runtime)
    assert "mode 0700" in said(answer, "socket folder")


def test_events_in_the_future(fleet: Fleet):
    store = open_store(fleet.home, clock=lambda: time.time() + 7200)
    cases.submit(store)
    store.close()
    answer = fleet.json("doctor")
    assert levels(answer)["clock"] == "warning"
    assert "in the future" in said(answer, "clock")


# Single checks


def test_the_version_of_sqlite():
    assert doctor_checks.check_sqlite((3, 51, 3)).level == "ok"
    old = doctor_checks.check_sqlite((3, 51, 2))
    assert (old.level, "3.51.3" in old.message) == ("warning", True)


@pytest.mark.parametrize(
    ("kind", "level"), [("ext4", "ok"), ("nfs4", "warning"), ("fuse.sshfs", "warning"), ("fuse.ext4", "ok")]
)
def test_network_file_systems(tmp_path: Path, kind: str, level: str):
    disk = tmp_path / "eine Plätte"
    home, point = disk / "not there yet", str(disk).replace(" ", "\\040")
    disk.mkdir()
    mounts = f"/dev/sda1 / ext4 rw 0 0\nserver:/x {point} {kind} rw 0 0\nother {point}x nfs rw 0 0\n"
    found = doctor_checks.check_file_system(home, mounts)
    assert (found.level, kind in found.message) == (level, True)


@pytest.mark.parametrize(
    ("space", "inodes", "level"),
    [(10 << 30, None, "ok"), (1 << 30, 10**6, "warning"), (10 << 30, 40_000, "warning"), (50 << 20, 10**6, "problem")],
)
def test_disks(space: int, inodes: int | None, level: str):
    assert doctor_checks._disk(Path("/"), space, inodes).level == level  # pyright: ignore[reportPrivateUsage]
