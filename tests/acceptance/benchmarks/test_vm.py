"""Guests as attempts use them: killed at any moment, prepared once, poisoned, watched, and desk inside."""

from __future__ import annotations

import json
import os
import select
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.support.fleet import Fleet
from tests.support.guests import guest, opening

from evalfleet import config
from evalfleet.agents.oracle import SCRIPTS
from evalfleet.agents.solutions.screen import PATIENCE_S, Player
from evalfleet.benchmarks.attempt import Recorder, play
from evalfleet.benchmarks.desk.benchmark import MAX_STEPS
from evalfleet.benchmarks.desk.episode import DeskEpisode
from evalfleet.benchmarks.desk.task import BUILT_IN, load
from evalfleet.environments.vm import environment as vm
from evalfleet.environments.vm import golden
from evalfleet.environments.vm.settings import Reset, VmSettings
from evalfleet.errors import InputError
from evalfleet.testing.environment_contract import marked, wait_until

pytestmark = [pytest.mark.timeout(900), pytest.mark.slow]

TASKS = load(BUILT_IN)
# Appends a line to a note, and is solved if that is the only one: what an attempt leaves is the next one's failure.
NOTE = {
    "id": "one-line",
    "instruction": "Nothing is to be done.",
    "related_apps": ["mousepad"],
    "config": [{"type": "execute", "parameters": {"command": ["sh", "-c", "echo line >>note.txt"]}}],
    "evaluator": {
        "func": "text_match",
        "result": {"type": "file_text", "path": "note.txt"},
        "expected": {"type": "rule", "rules": {"expected": "line"}},
    },
}
IDLE = """
from evalfleet.agents.base import Decision

class Idle:
    def __init__(self, brief):
        pass

    def act(self, observation):
        return Decision(actions=(), done=True)
"""


def started(source: str, folder: Path, mark: str) -> subprocess.Popen[str]:
    folder.mkdir(exist_ok=True)
    argv = [sys.executable, "-c", source, str(folder)]
    env = {**config.environment(), "EVALFLEET_ATTEMPT": mark}
    return subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)


def files_of(settings: VmSettings) -> list[str]:
    """All files on the host, also those without a name that a process has open."""
    found = golden.find(settings).folder
    return sorted(str(path) for path in found.parent.glob(f"{found.name}*") for path in [path, *path.rglob("*")])


def test_a_kill_at_any_moment_leaves_neither_process_nor_file(tmp_path: Path) -> None:
    settings = guest()
    with vm.launched(settings):
        pass
    before = files_of(settings)
    source = opening(settings)
    for number, delay_s in enumerate((0.2, 0.5, 0.8, 1.2, 1.8)):
        mark = f"kill.{os.getpid()}.{number}"
        with started(source, tmp_path / str(number), mark) as process:
            time.sleep(delay_s)  # the moments of the kill, not a wait for anything
            process.kill()
        wait_until(lambda mark=mark: not marked(mark), "the end of all processes")
    assert files_of(settings) == before


def test_a_guest_is_watched_by_vnc_and_by_its_own_screen(tmp_path: Path) -> None:
    view = tmp_path / "vnc.sock"
    with vm.launched(guest(), view=view) as opened:
        with socket.socket(socket.AF_UNIX) as viewer:
            viewer.settimeout(30)
            viewer.connect(str(view))
            assert viewer.recv(12) == b"RFB 003.008\n"
        assert opened.screen()[:8] == b"\x89PNG\r\n\x1a\n"
        assert opened.screenshot()[:8] == b"\x89PNG\r\n\x1a\n"
    assert not view.exists()


def score_twice(settings: VmSettings, folder: Path) -> list[float]:
    """The scores of the same task in two attempts, one after the other."""
    tasks = folder / "tasks" / "mousepad"
    tasks.mkdir(parents=True, exist_ok=True)
    (tasks / "one-line.json").write_text(json.dumps(NOTE))
    task = load(folder / "tasks")[0]
    found: list[float] = []
    for _ in range(2):
        with vm.launched(settings) as opened:
            found.append(DeskEpisode(opened, task).finish().score)
    return found


def test_a_poisoned_guest_changes_the_next_score_only_where_it_is_kept(tmp_path: Path) -> None:
    clean = guest()
    assert score_twice(clean, tmp_path) == [1.0, 1.0]
    kept = msgspec.structs.replace(clean, reset=Reset.CLOSE)
    shutil.rmtree(f"{golden.find(kept).folder}.kept", ignore_errors=True)
    assert score_twice(kept, tmp_path) == [1.0, 0.0]
    # Its memory goes on as well, with its windows closed.
    with vm.launched(kept) as opened:
        opened.execute(["sh", "-c", "echo x >/tmp/in-memory"])
        opened.launch(["mousepad"])
        opened.wait_for_windows(lambda windows: len(windows) == 1, "the editor")
        opened.reset()
        assert opened.windows() == []
        assert opened.execute(["cat", "/tmp/in-memory"]).stdout == b"x\n"
    with vm.launched(kept) as opened:
        assert opened.execute(["cat", "/tmp/in-memory"]).stdout == b"x\n"
        os.kill(opened.pid, 9)
    with vm.launched(kept) as opened:  # one that was killed cannot go on
        assert opened.execute(["cat", "/tmp/in-memory"]).code != 0
        with pytest.raises(InputError):
            opened.read("note.txt")


@pytest.mark.long
def test_a_restarted_guest_keeps_its_disk_and_an_overlay_does_not(tmp_path: Path) -> None:
    restart = msgspec.structs.replace(guest(), reset=Reset.RESTART)
    shutil.rmtree(f"{golden.find(restart).folder}.kept", ignore_errors=True)
    with vm.launched(restart) as opened:
        opened.write("kept", b"x")
        opened.execute(["sh", "-c", "echo x >/tmp/in-memory"])
        opened.reset()
        assert opened.read("kept") == b"x"
        assert opened.execute(["cat", "/tmp/in-memory"]).code != 0
    with vm.launched(restart) as opened:
        assert opened.read("kept") == b"x"
    with vm.launched(msgspec.structs.replace(guest(), reset=Reset.OVERLAY)) as opened:
        with pytest.raises(InputError):
            opened.read("kept")
        opened.write("kept", b"y")
        opened.reset()
        with pytest.raises(InputError):
            opened.read("kept")


@pytest.mark.long
def test_two_processes_prepare_an_image_once_and_a_killed_one_leaves_the_rest_to_the_other(tmp_path: Path) -> None:
    settings = msgspec.structs.replace(guest(), folder=str(tmp_path / "cache"))
    source = opening(settings)
    with started(source, tmp_path / "killed", f"first.{os.getpid()}") as killed:
        wait_until(lambda: marked(f"first.{os.getpid()}", "qemu"), "the guest that is booted")
        killed.kill()
    wait_until(lambda: not marked(f"first.{os.getpid()}"), "the end of all processes")
    marks = [f"{name}.{os.getpid()}" for name in ("one", "two")]
    both = [started(source, tmp_path / mark, mark) for mark in marks]
    booted: set[int] = set()

    def are_up() -> bool:
        booted.update(pid for mark in marks for pid in marked(mark, "qemu") if b"share=on" in _argv(pid))
        return not any(process.poll() is None and not _says(process) for process in both)

    deadline = time.monotonic() + 600
    while not are_up():
        assert time.monotonic() < deadline
    assert len(booted) == 1
    for process in both:
        process.communicate("", timeout=60)
        assert process.returncode == 0
    assert not list((tmp_path / "cache").glob("*.new"))


def _argv(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _says(process: subprocess.Popen[str]) -> bool:
    assert process.stdout is not None
    return bool(select.select([process.stdout], [], [], 0.1)[0])


def run_desk(fleet: Fleet, settings: VmSettings, *args: str, code: int = 0) -> dict[str, Any]:
    rows = [
        f"{name} = {json.dumps(value)}" for name, value in msgspec.to_builtins(settings).items() if value is not None
    ]
    table = "\n".join(rows)
    (fleet.folder / "tasks" / "mousepad").mkdir(parents=True, exist_ok=True)
    (fleet.folder / "tasks" / "mousepad" / "one-line.json").write_text(json.dumps(NOTE))
    (fleet.folder / "idle.py").write_text(IDLE)
    (fleet.folder / "evalfleet.toml").write_text(f'[desk]\nenvironment = "vm"\ntasks = "tasks"\n[vm]\n{table}\n')
    process = fleet.start("run", "desk", *args, "--json")
    output, _ = process.communicate(timeout=800)
    assert process.returncode == code, output
    return json.loads(output.splitlines()[-1])


def test_desk_in_guests_through_the_engine(fleet: Fleet) -> None:
    told = run_desk(fleet, guest(), "--agent", "idle:Idle", "--task", "one-line", "--repeat", "2", "--workers", "1")
    assert [row["score"] for row in told["results"]] == [1.0, 1.0]


def test_a_guest_that_dies_is_a_failure_of_the_environment_and_no_score(fleet: Fleet) -> None:
    broken = msgspec.structs.replace(guest(), arguments=("-device", "no-such-card"))
    args = ("--agent", "idle:Idle", "--task", "one-line", "--attempts", "1")
    told = run_desk(fleet, broken, *args, code=1)
    (row,) = told["results"]
    assert row["score"] is None
    assert row["failure"]["kind"] == "environment_failed"
    assert "no-such-card" in row["failure"]["evidence"]


def test_doctor_checks_guests_only_where_they_are_configured(fleet: Fleet) -> None:
    def vm_checks(code: int) -> dict[str, str]:
        done = fleet.command("doctor", "--json")
        assert done.returncode == code, done.stderr
        found = {check["name"]: check["level"] for check in json.loads(done.stdout)["checks"]}
        return {name: level for name, level in found.items() if name.startswith("vm ")}

    assert vm_checks(0) == {}
    (fleet.folder / "evalfleet.toml").write_text('[vm]\nimage = "none.qcow2"\n')
    assert vm_checks(3) == {"vm image": "problem"}
    settings = guest()
    (fleet.folder / "evalfleet.toml").write_text(f'[vm]\nimage = "{settings.image}"\naccelerator = "tcg"\n')
    assert vm_checks(0) == {"vm image": "ok", "vm accelerator": "ok", "vm memory": "ok"}


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("domain", sorted({task.domain for task in TASKS}))
def test_the_oracle_solves_every_task_of_desk_in_guests_as_it_does_on_desktops(tmp_path: Path, domain: str) -> None:
    settings = guest("desk", screen="1280x800", memory_mb=1024)
    found: dict[str, float] = {}
    for task in TASKS:
        if task.domain == domain:
            agent = Player(SCRIPTS["desk"][task.id], patience_s=4 * PATIENCE_S)
            folder = tmp_path / task.id
            folder.mkdir()
            with vm.launched(settings) as opened:
                verdict, _ = play(DeskEpisode(opened, task), agent, Recorder(folder / "events", folder), MAX_STEPS)
            found[task.id] = verdict.score
    assert found == dict.fromkeys(found, 1.0)
