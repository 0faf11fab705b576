"""A runner on a machine that is half broken: what it cannot do costs that, and nothing else."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.support.runner import RunnerClient, RunnerSpool, a_spec, is_alive, wait_until

NAMELESS = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execve("/bin/sh", ["sh", "-c", "echo $$ > %s; exec sleep 300" % sys.argv[1]], {})
    os._exit(0)
time.sleep(300)
"""


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[RunnerSpool]:
    runner = RunnerSpool(tmp_path / "spool")
    yield runner
    runner.close()


def ended(spool: RunnerSpool) -> list[str]:
    with spool.client() as client:
        return [one["attempt"] for one in client.must("hello", protocol=1)["attempts"] if one["state"] == "ended"]


@contextmanager
def immutable(path: Path) -> Iterator[None]:
    """Nobody can delete it."""
    if shutil.which("chattr") is None or subprocess.run(["chattr", "+i", path], check=False).returncode:
        pytest.skip("this file system, or this user, makes nothing immutable")
    try:
        yield
    finally:
        subprocess.run(["chattr", "-i", *_files_like(path)], check=True)


def _files_like(path: Path) -> list[str]:
    """It may have been moved."""
    return [str(one) for one in path.parents[3].rglob(path.name) if one.exists()]


# Processes


def test_a_moment_without_threads_costs_no_end(tmp_path: Path) -> None:
    """Attempts that end while the host allows no further thread or process are told, and so are later ones."""
    group = Path("/sys/fs/cgroup/pids") / f"evalfleet-test-{os.getpid()}"
    try:
        group.mkdir()
    except OSError:
        pytest.skip("no control group for numbers of processes here")
    spool = RunnerSpool(tmp_path / "spool")
    try:
        info = spool.start()
        with spool.client() as client:
            for name in "abcd":
                client.launch(name, a_spec("/bin/sh", "-c", f"read x < {_fifo(tmp_path, name)}"))
                client.event(name, "started")
            (group / "cgroup.procs").write_text(str(info.pid))
            (group / "pids.max").write_text("1")
            for name in "abcd":
                (tmp_path / name).write_text("go\n")
            assert [client.end(name)["exit_code"] for name in "abcd"] == [0] * 4
            (group / "pids.max").write_text("max")
            assert client.run("later", "true")["exit_code"] == 0
    finally:
        spool.close()
        wait_until(lambda: not (group / "cgroup.procs").read_text(), "the group to be empty")
        group.rmdir()


def _fifo(folder: Path, name: str) -> Path:
    os.mkfifo(folder / name)
    return folder / name


def test_a_nameless_daemon_of_the_first_moment_does_not_survive_the_runner(spool: RunnerSpool, tmp_path: Path) -> None:
    spool.start()
    with spool.client() as client:
        client.launch("a", a_spec(sys.executable, "-c", NAMELESS, str(tmp_path / "pid")))
        pid = int(wait_until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().strip(), "a pid"))
    spool.kill()
    assert is_alive(pid)
    spool.start()
    assert not is_alive(pid)
    assert spool.journal("a")[-1]["cause"] == "runner_lost"


# Files that cannot be deleted or read


def test_what_cannot_be_deleted_costs_nobody(spool: RunnerSpool) -> None:
    """As a container leaves files of another user: the attempt is acked all the same, and no later runner stumbles over it."""
    spool.start()
    with spool.client() as client:
        client.run("a", "/bin/sh", "-c", "echo > $EVALFLEET_ARTIFACTS/stuck")
        with immutable(spool.attempt("a") / "artifacts" / "stuck"):
            client.must("ack", run="r", epoch=1, attempt="a")
            assert ended(spool) == []
            assert not spool.attempt("a").exists()
            spool.kill()
            spool.start()
            assert ended(spool) == []
            assert "stuck" in spool.log()
    with spool.client() as client:
        assert client.run("b", "true")["exit_code"] == 0
    spool.kill()
    spool.start()
    assert list((spool.folder / "trash").iterdir()) == []


@pytest.mark.parametrize("name", ["attempts", "files", "trash"])
def test_a_runner_does_not_begin_where_a_person_has_folders_of_these_names(spool: RunnerSpool, name: str) -> None:
    thesis = spool.folder / name / ".thesis"
    thesis.parent.mkdir(parents=True)
    thesis.write_text("mine")
    done = subprocess.run(spool.command("serve", "--spool", str(spool.folder)), capture_output=True, check=False)
    line = json.loads(done.stdout)
    assert (line["error"], str(thesis.parent) in line["message"]) == ("foreign", True)
    assert [path.name for path in spool.folder.iterdir() if path.is_dir()] == [name]
    assert thesis.read_text() == "mine"


def test_a_folder_that_cannot_be_moved_stops_no_runner(spool: RunnerSpool) -> None:
    """Without a journal it was never launched; nobody needs it, and nobody can remove it."""
    spool.start()
    spool.kill()
    stuck = spool.attempt("stuck") / "artifacts"
    stuck.mkdir(parents=True)
    with immutable(stuck.parent):
        spool.start()
        with spool.client() as client:
            assert client.run("a", "true")["exit_code"] == 0


def test_an_attempt_that_cannot_be_read_is_kept_and_told(spool: RunnerSpool, tmp_path: Path) -> None:
    """It may have ended well. A folder in the journal's place gives another error than a missing file."""
    spool.start()
    with spool.client() as client:
        end = client.run("r.1.1", "true")
    spool.kill()
    journal = spool.attempt("r.1.1") / "journal.jsonl"
    journal.rename(tmp_path / "kept")
    journal.mkdir()
    spool.start()
    with spool.client() as client:
        answer = client.must("hello", protocol=1)
        assert (answer["attempts"], [one["attempt"] for one in answer["unreadable"]]) == ([], ["r.1.1"])
        refused = client.ask("launch", run="r", epoch=1, attempt="r.1.1", spec=a_spec("true"), secrets={})
        assert (refused["error"], "is here already" in refused["message"]) == ("io_error", True)
        journal.rmdir()
        (tmp_path / "kept").rename(journal)
        assert [one["attempt"] for one in client.must("hello", protocol=1)["attempts"]] == ["r.1.1"]
        client.must("attach", attempt="r.1.1", **{"from": 0})
        assert client.end("r.1.1") == end


# Launches and starts


def test_a_launch_that_was_under_way_for_too_long_starts_nothing(spool: RunnerSpool) -> None:
    """Its sender gave it up long ago, and may be gone: the time counts from when it was written."""
    spool.start()
    with spool.client() as client:
        now = client.must("ping")["now"]
        fields = {"run": "r", "epoch": 1, "spec": a_spec("true"), "secrets": {}, "valid_for_s": 60}
        refused = client.ask("launch", attempt="late", not_after=now - 0.001, **fields)
        assert refused["error"] == "expired"
        assert not spool.attempt("late").exists()
        client.must("launch", attempt="soon", not_after=now + 60, **fields)
        assert client.end("soon")["exit_code"] == 0


def test_much_that_a_lost_attempt_left_does_not_hold_up_the_next_runner(spool: RunnerSpool) -> None:
    """Its secrets are sought in a sparse file of 512 MB while the new runner serves already."""
    spool.start()
    with spool.client() as client:
        script = "truncate -s 512M $EVALFLEET_ARTIFACTS/big; echo > $EVALFLEET_ARTIFACTS/up; sleep 300"
        client.launch("lost", a_spec("/bin/sh", "-c", script), secrets={"KEY": "hunter22"})
        wait_until((spool.attempt("lost") / "artifacts/up").exists, "the file")
    spool.kill()
    spool.start()
    with spool.client() as client:
        (entry,) = client.must("hello", protocol=1)["attempts"]
        assert (entry["attempt"], entry["state"]) == ("lost", "running")
        client.must("attach", attempt="lost", **{"from": 0})
        assert client.run("new", "true")["exit_code"] == 0
        assert not [event for event in client.of("lost") if event["type"] == "ended"]
        end = client.end("lost")
        assert (end["cause"], sorted(one["path"] for one in end["artifacts"])) == ("runner_lost", ["big", "up"])
        client.must("ack", run="r", epoch=1, attempt="lost")


# A full disk


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A disk of 4 MB."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "x", folder], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip("this user mounts nothing")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def fill(folder: Path) -> Path:
    path = folder / "ballast"
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"\0" * 4096)
        except OSError as error:
            assert error.errno == errno.ENOSPC
    return path


def test_a_runner_that_cannot_write_an_end_keeps_its_door_open(small: Path) -> None:
    """Only it knows the end: who comes gets it from there, and then the runner leaves."""
    spool = RunnerSpool(small / "spool")
    info = spool.start()
    with spool.client() as client:
        result = """printf '{"note": "%08000d"}' 0 > $EVALFLEET_RESULT"""  # more than the last page of the journal has room for
        client.launch("a", a_spec("/bin/sh", "-c", f"{result}; echo up; read x < {_fifo(small, 'gate')}; exit 3"))
        wait_until((spool.attempt("a") / "stdout.log").exists, "the result")
        fill(small)
        (small / "gate").write_text("go\n")
        assert client.end("a")["exit_code"] == 3
    os.kill(info.pid, signal.SIGTERM)
    wait_until(lambda: _is_ending(spool), "the signal to arrive")
    wait_until(lambda: spool.info() is not None, "the socket")
    with spool.client() as client:
        client.must("attach", attempt="a", **{"from": 0})
        assert client.end("a")["exit_code"] == 3
        refused = client.ask("launch", run="r", epoch=1, attempt="b", spec=a_spec("true"), secrets={})
        assert refused["error"] == "shutting_down"
        client.must("ack", run="r", epoch=1, attempt="a")
    wait_until(lambda: not is_alive(info.pid), "the runner's end")
    assert spool.info() is None


def _is_ending(spool: RunnerSpool) -> bool:
    info = spool.info()
    if info is None:
        return True
    try:
        with RunnerClient(info.socket) as client:
            said = client.ask("launch", run="r", epoch=1, attempt="b", spec=a_spec("true"), secrets={})
            return said["error"] == "shutting_down"
    except OSError:
        return False  # the socket was just closed


def test_a_fence_is_written_whole_or_not_at_all(small: Path) -> None:
    """A nearly full disk takes half of a file: the old one stays, and the answer says so."""
    spool = RunnerSpool(small / "spool")
    spool.start()
    with spool.client() as client:
        for number in range(600):
            client.must("hello", protocol=1, run=f"run-{number:04}", epoch=1)
        ballast = fill(small)
        os.truncate(ballast, ballast.stat().st_size - 4096)
        refused = client.ask("hello", protocol=1, run="another", epoch=1)
        assert (refused.get("error"), refused.get("errno")) == ("io_error", errno.ENOSPC)
        assert len(json.loads((spool.folder / "epochs.json").read_text())) == 600
        refused = client.ask("hello", protocol=1, run="another", epoch=1)
        assert refused.get("error") == "io_error"
        ballast.unlink()
        client.must("hello", protocol=1, run="another", epoch=1)
    spool.kill()
    spool.start()
    with spool.client() as client:
        assert client.ask("hello", protocol=1, run="another", epoch=0)["error"] == "stale_epoch"
    spool.close()
