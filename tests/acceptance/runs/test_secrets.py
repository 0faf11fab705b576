"""Secrets reach the task and nothing else."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

from tests.support.fleet import Fleet, wait_for

SECRET = "sk-very-hidden-0123456789"
NAME = "API_KEY"


def found_in(folder: Path) -> list[str]:
    done = subprocess.run(["grep", "-rlaF", SECRET, str(folder)], capture_output=True, text=True, check=False)
    return done.stdout.split()


def test_a_secret_that_the_task_prints_is_nowhere(fleet: Fleet):
    script = f"""
        test "${NAME}" = {SECRET.replace("sk-", "s''k-")} || exit 9
        echo "out ${NAME}"; echo "err ${NAME}" >&2
        echo "{{\\"note\\": \\"${NAME}\\"}}" >> $EVALFLEET_EVENTS
        echo "artifact ${NAME}" > $EVALFLEET_ARTIFACTS/a.txt
        echo "{{\\"score\\": 1, \\"metrics\\": {{\\"k\\": \\"${NAME}\\"}}}}" > $EVALFLEET_RESULT
        [ $EVALFLEET_ATTEMPT_NUMBER = 2 ] || exit 1
    """
    task = {"key": "a", "command": ["sh", "-c", script], "secrets": [NAME]}
    path = fleet.tasks([task], retry_base="1ms")
    summary = fleet.json("run", path, API_KEY=SECRET)
    assert summary["tasks"]["done"] == 1
    assert summary["attempts"]["total"] == 2
    outputs = [
        json.dumps(summary),
        *(fleet.command(*args).stdout for args in (("report",), ("events", "--json"), ("logs", "latest", "a"))),
    ]
    assert not any(SECRET in text for text in outputs)
    assert found_in(fleet.home) == []
    assert f"[secret {NAME}]" in fleet.command("logs", "latest", "a").stdout


def test_it_is_in_nobodys_arguments_and_only_in_the_tasks_environment(fleet: Fleet):
    script = "echo $$ > pid; until [ -e gate ]; do sleep 0.05; done"
    path = fleet.tasks([{"key": "a", "command": ["sh", "-c", script], "secrets": [NAME]}])
    controller = fleet.start("run", path, API_KEY=SECRET)
    wait_for((fleet.folder / "pid").exists, "the task to start")
    task = int(wait_for((fleet.folder / "pid").read_text, "its pid"))
    runner = fleet.runner_pid()
    holders: set[int] = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                assert SECRET.encode() not in (entry / "cmdline").read_bytes()
                if SECRET.encode() in (entry / "environ").read_bytes():
                    holders.add(int(entry.name))
            except OSError:
                continue
    assert task in holders
    assert runner not in holders
    (fleet.folder / "gate").touch()
    controller.wait(30)


def test_a_missing_secret_is_refused_at_submit(fleet: Fleet):
    path = fleet.tasks([{"key": "a", "command": ["true"], "secrets": [NAME]}])
    done = fleet.command("run", path)
    assert done.returncode == 2
    assert NAME in done.stderr
    assert fleet.json("status")["runs"] == []


def test_a_secret_that_is_missing_later_pauses_the_run(fleet: Fleet):
    path = fleet.tasks([{"key": "a", "command": ["true"], "secrets": [NAME]}])
    fleet.json("run", path, "--detach", API_KEY=SECRET)
    paused = fleet.command("resume")
    assert paused.returncode == 3
    assert NAME in paused.stdout
    assert fleet.json("report")["attempts"]["total"] == 0
    assert fleet.json("resume", API_KEY=SECRET)["tasks"]["done"] == 1


def test_a_dead_runner_leaves_no_secret_behind(fleet: Fleet):
    script = f'echo "{{\\"note\\": \\"${NAME}\\"}}" >> $EVALFLEET_EVENTS; echo x >> ledger; until [ -e gate ]; do sleep 0.05; done'
    path = fleet.tasks([{"key": "a", "command": ["sh", "-c", script], "secrets": [NAME]}])
    controller = fleet.start("run", path, API_KEY=SECRET)
    wait_for(fleet.lines, "the task to start")
    pid = fleet.runner_pid()
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: len(fleet.lines()) == 2, "the second attempt")
    (fleet.folder / "gate").touch()
    assert controller.wait(30) == 0
    assert found_in(fleet.home) == []


def test_secrets_of_a_tree_that_died_with_its_runner_are_removed(fleet: Fleet):
    note = f'echo "{{\\"note\\": \\"${NAME}\\"}}" >> $EVALFLEET_EVENTS; echo $$ >> ledger'
    script = f"{note}; until [ -e gate ]; do sleep 0.05; done"
    path = fleet.tasks([{"key": "a", "command": ["sh", "-c", script], "secrets": [NAME]}])
    controller = fleet.start("run", path, API_KEY=SECRET)
    task = int(wait_for(fleet.lines, "the task to start")[0])
    runner = fleet.runner_pid()
    assert runner is not None
    os.kill(runner, signal.SIGSTOP)  # so that it cannot see the end of the task
    os.killpg(task, signal.SIGKILL)
    os.kill(runner, signal.SIGKILL)
    wait_for(lambda: len(fleet.lines()) == 2, "the second attempt")
    (fleet.folder / "gate").touch()
    assert controller.wait(30) == 0
    assert found_in(fleet.home) == []


def test_a_secret_in_the_name_of_a_file(fleet: Fleet):
    script = f"echo x > $EVALFLEET_ARTIFACTS/${NAME}.txt"
    path = fleet.tasks([{"key": "a", "command": ["sh", "-c", script], "secrets": [NAME]}])
    assert fleet.json("run", path, API_KEY=SECRET)["tasks"]["done"] == 1
    assert not list(fleet.home.rglob(f"*{SECRET}*"))


def test_files_of_a_lost_attempt_wait_for_the_secret_that_they_may_hold(fleet: Fleet):
    """The machine loses power; who resumes the run first does not know the secret."""
    script = f"""
        echo "{{\\"note\\": \\"${NAME}\\"}}" >> $EVALFLEET_EVENTS; echo "debug ${NAME}" > $EVALFLEET_ARTIFACTS/debug.txt
        echo $$ >> ledger; until [ -e gate ]; do sleep 0.05; done
    """
    path = fleet.tasks([{"key": "a", "command": ["sh", "-c", script], "secrets": [NAME]}])
    controller = fleet.start("run", path, API_KEY=SECRET)
    task = int(wait_for(fleet.lines, "the task to start")[0])
    runner = fleet.runner_pid()
    assert runner is not None
    controller.kill()
    controller.wait()
    os.kill(runner, signal.SIGSTOP)  # so that it cannot see the end of the task
    os.killpg(task, signal.SIGKILL)
    os.kill(runner, signal.SIGKILL)
    for _ in range(2):
        assert fleet.command("resume").returncode == 3
        assert found_in(fleet.home / "runs") == []
    assert "attempt.uncollected" in [event["type"] for event in fleet.events()]
    assert "attempt.collected" not in [event["type"] for event in fleet.events()]
    (fleet.folder / "gate").touch()
    assert fleet.json("resume", API_KEY=SECRET)["tasks"]["done"] == 1
    assert found_in(fleet.home) == []
    assert sorted(one.read_text() for one in fleet.home.rglob("debug.txt")) == [f"debug [secret {NAME}]\n"] * 2


def test_only_what_was_looked_into_comes_home(fleet: Fleet):
    script = f"""
        cd $(dirname $EVALFLEET_TASK); echo ${NAME} > notes; mkdir mine; echo ${NAME} > mine/more; cd $EVALFLEET_ARTIFACTS
        ln -s ${NAME} link; deep=.; for i in $(seq 34); do deep=$deep/d; done; mkdir -p $deep; echo ${NAME} > $deep/lost
        mkdir of-${NAME}; echo kept > kept.txt; printf '\\377' > $(printf 'odd-\\377')
    """
    path = fleet.tasks([{"key": "a", "command": ["sh", "-c", script], "secrets": [NAME]}])
    assert fleet.json("run", path, API_KEY=SECRET)["tasks"]["done"] == 1
    assert found_in(fleet.home) == []
    (folder,) = (one.parent for one in (fleet.home / "runs").rglob("journal.jsonl"))
    assert sorted(os.listdir(os.fsencode(folder))) == [b"artifacts", b"journal.jsonl", b"task.json"]
    assert sorted(os.listdir(os.fsencode(folder / "artifacts"))) == [b"kept.txt", b"odd-\xff"]
    assert not any(SECRET in str(one) for one in fleet.home.rglob("*"))


def test_a_secret_in_env_is_warned_of(fleet: Fleet):
    path = fleet.tasks([{"key": "a", "command": ["true"], "env": {NAME: SECRET}}])
    done = fleet.command("run", path)
    assert done.returncode == 0
    assert f"warning: {NAME} looks like a secret" in done.stderr
    assert SECRET not in done.stderr
