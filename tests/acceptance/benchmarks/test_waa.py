"""Windows Agent Arena through its stand-in: a real `docker` command, a real daemon, real processes in its "containers"."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from examples.fake_waa.arena import Arena, arena
from examples.fake_waa.client import score_of
from tests.support.fleet import Fleet, wait_for
from tests.support.waa import KEY, OTHER, PAD, attempts, carrying, configure, names, run, sleepers

from evalfleet.benchmarks.waa.catalogue import index
from evalfleet.runner.attempt.process_tree import stat_of

pytestmark = pytest.mark.timeout(300)


TASKS = [(domain, task) for domain, ids in index().items() for task in ids]


FAULTS = {"hang": 15, "missing": 8, "crash": 8}  # of 154: 10 %, 5 %, 5 %
EVIDENCE = {
    "hang": "run.py did not get as far as the task's first screen; last it printed: ",
    "missing": "run.py ended with status 0 and left no result.txt",
    "crash": "run.py ended with status 1 and left no result.txt; last it printed: ModuleNotFoundError: No module named",
}


@pytest.mark.long
@pytest.mark.slow
def test_all_tasks_on_10_workers_with_faults(tmp_path: Path, fleet: Fleet):
    words = [fault for fault, count in FAULTS.items() for _ in range(count)]
    injected = {f"{domain}/{task}": fault for (domain, task), fault in zip(TASKS[::4], words, strict=False)}
    assert len(injected) == 31
    with arena(tmp_path / "arena", names(10)) as made:
        configure(fleet, made)
        for key, fault in injected.items():
            made.fail(key.partition("/")[2], fault)
        summary = run(fleet)
        assert not any(carrying(container) for container in made.containers)
    assert summary["tasks"]["total"] == summary["tasks"]["done"] == 154
    results = {row["key"]: row for row in summary["results"]}
    assert {key: row["score"] for key, row in results.items()} == {f"{d}/{t}": score_of(t) for d, t in TASKS}
    assert summary["scores"]["coverage"] == 1.0
    assert summary["scores"]["strict"] == summary["scores"]["valid"]
    first = {}
    for attempt in attempts(fleet):
        first.setdefault(attempt["task"], attempt)
    for key, fault in injected.items():
        assert (first[key]["kind"], first[key]["blame"]) == ("environment_failed", "worker"), fault
        assert first[key]["evidence"].startswith(EVIDENCE[fault])
    assert all(results[key]["attempts"] >= 2 for key in injected)
    # Whatever else failed on a busy machine was not the agent's either.
    assert {one["blame"] for one in attempts(fleet) if "blame" in one} == {"worker"}


def test_progress_tokens_and_files_of_a_task(waa: Arena, fleet: Fleet):
    summary = run(fleet, "--task", PAD, "--option", f"checkout={waa.folder}")
    (row,) = summary["results"]
    assert (row["key"], row["domain"], row["score"], row["steps"]) == (PAD, "notepad", score_of(PAD[8:]), 3)
    lines = [line for event in fleet.events() for line in event["data"].get("lines", [])]
    assert lines[0]["ready"] is True
    assert lines[0]["note"] == f"Do {PAD[8:]}. (in {waa.containers[0]})"
    assert [line["step"] for line in lines if "step" in line] == [0, 1, 2, 3]
    assert row["metrics"]["tokens"] == 3 * 1050
    assert sum(line.get("cost_usd", 0) for line in lines) == pytest.approx(3 * (1000 * 2 + 50 * 10) / 1e6)
    assert waa.model_keys() == {f"Bearer {KEY}"}
    folder = Path(fleet.json("logs", "latest", PAD)["folder"])
    left = {path.name for path in (folder / "artifacts").iterdir()}
    assert {"traj.jsonl", "trajectory.jsonl", "result.txt", "logs"} <= left
    assert {line["screenshot"] for line in lines if "screenshot" in line} <= left
    assert "Response from server" in (folder / "stdout.log").read_text()
    assert not list((waa.folder / "results").iterdir())  # nothing is left in the container


CASES = {
    "error": ("environment_failed", "evalfleet", "Max retries exceeded"),
    "empty": ("environment_failed", "evalfleet", "status 0 and left no result.txt"),
    "garbage": ("environment_failed", "evalfleet", "result.txt holds 'not a number'"),
    "half": ("environment_failed", "evalfleet", "status 1 and left no result.txt"),
    "kill": ("environment_failed", "evalfleet", "killed by signal 9"),
    "agent": ("task_error", "agent", "ValueError: no code block in the plan"),
    "service": ("service_refused", "endpoint", "insufficient_quota"),
}


def test_whose_fault_it_was(waa: Arena, fleet: Fleet):
    tasks = dict(zip(index()["vs_code"], CASES, strict=False))
    for task, fault in tasks.items():
        waa.fail(task, fault)
    summary = run(fleet, *(word for task in tasks for word in ("--task", task)))
    assert summary["tasks"]["done"] == len(CASES)
    failed = {one["task"].partition("/")[2]: one for one in attempts(fleet) if "kind" in one}
    for task, fault in tasks.items():
        kind, _, evidence = CASES[fault]
        assert (failed[task]["kind"], evidence in failed[task]["evidence"]) == (kind, True), failed[task]
    half = next(task for task, fault in tasks.items() if fault == "half")
    logs = fleet.json("logs", "latest", f"vs_code/{half}", "--attempt", "1")
    assert (Path(logs["folder"]) / "artifacts" / "traj.jsonl").read_text().endswith('{"step_num": 2, "act')


def test_an_agent_that_always_raises_has_failed(waa: Arena, fleet: Fleet):
    waa.fail(PAD[8:], "agent", "agent", "agent")
    summary = run(fleet, "--domain", "notepad")
    assert {row["key"]: row["state"] for row in summary["results"]} == {PAD: "failed", OTHER: "done"}
    assert summary["scores"]["coverage"] == 1.0  # the agent's own failure counts 0
    assert summary["scores"]["valid"] == score_of(OTHER[8:]) / 2


def test_a_hang_inside_the_container_is_ended_there(waa: Arena, fleet: Fleet):
    """The agent's own hang, after its first step and while Windows answers; all of it is ended."""
    waa.fail(PAD[8:], "stop", "stop")
    summary = run(fleet, "--task", PAD)
    assert summary["tasks"]["done"] == 1
    # One hang may be the container's, which is restarted; after a second one it counts as the agent's.
    assert [one.get("kind") for one in attempts(fleet)] == ["environment_failed", "stall", None]
    assert carrying(waa.containers[0]) == []
    for number in ("1", "2"):  # its logs came home all the same
        logs = Path(fleet.json("logs", "latest", PAD, "--attempt", number)["folder"]) / "artifacts" / "logs"
        assert {path.name.partition("-")[0] for path in logs.iterdir()} == {"normal", "task"}


def test_a_guest_that_falls_silent_is_not_the_agents(waa: Arena, fleet: Fleet):
    waa.fail(PAD[8:], "stop")
    process = fleet.start("run", "waa", "--agent", "other", "--task", PAD)
    wait_for(lambda: sleepers(waa.containers[0]), "the hang")
    waa.silence()
    wait_for(waa.restarts, "the second attempt, which begins with a restart of what failed")
    (waa.docker / "silent").unlink()
    assert process.wait(60) == 0
    first, last = attempts(fleet)
    assert first["kind"] == "environment_failed"
    assert first["evidence"].startswith("Windows stopped answering after step 1")
    assert last["outcome"] == "ok"


@pytest.mark.parametrize("who", ["attempt", "client", "runner"])
def test_what_is_killed_outside_does_not_run_on_inside(waa: Arena, fleet: Fleet, who: str):
    container = waa.containers[0]
    waa.fail(PAD[8:], "stop")
    process = fleet.start("run", "waa", "--agent", "other", "--task", PAD)
    (orphan,) = wait_for(lambda: sleepers(container), "the hang")
    assert outside(fleet, "-m evalfleet.benchmarks.waa.attempt")
    if who == "runner":
        pid = fleet.runner_pid()
        assert pid
        os.kill(pid, signal.SIGKILL)
    else:
        word = "-m evalfleet.benchmarks.waa.attempt" if who == "attempt" else str(waa.docker / "docker")
        for pid in outside(fleet, word):
            os.kill(pid, signal.SIGKILL)
    assert process.wait(60) == 0
    found = stat_of(orphan)
    assert found is None or found.dead  # dead, and perhaps not reaped yet by whoever inherited it
    assert carrying(container) == []
    assert fleet.json("report")["tasks"]["done"] == 1


def outside(fleet: Fleet, word: str) -> list[int]:
    """Processes of attempts on the host's side whose command line has the word."""
    found: list[int] = []
    for line in fleet.left_processes():
        pid, _, command = line.partition(" ")
        if word in command.replace("\0", " "):
            found.append(int(pid))
    return found


def test_what_a_killed_attempt_left_is_ended_and_downloaded_again_by_the_next(waa: Arena, fleet: Fleet):
    """Should all else fail: something with the container's mark runs there, and a download was cut off."""
    cut, other = (waa.client / "cache" / task[8:] / "gold.xlsx" for task in (PAD, OTHER))
    for file in (cut, other):
        file.parent.mkdir(parents=True)
        file.touch()
    container = waa.containers[0]
    left = subprocess.Popen(["sleep", "3600"], env={"EVALFLEET_CONTAINER": f"{waa.folder}/results/{container}"})
    try:
        assert run(fleet, "--task", PAD)["tasks"]["done"] == 1
        assert left.wait(30) == -signal.SIGKILL
        assert (cut.exists(), other.exists()) == (False, True)
    finally:
        left.kill()
        left.wait()


def test_cancel_reaches_into_the_container(waa: Arena, fleet: Fleet):
    waa.fail(PAD[8:], "stop")
    process = fleet.start("run", "waa", "--agent", "other", "--task", PAD)
    wait_for(lambda: sleepers(waa.containers[0]), "the hang")
    assert fleet.command("cancel").returncode == 0
    assert process.wait(60) == 1
    assert carrying(waa.containers[0]) == []


def test_too_slow_is_the_agents(tmp_path: Path, fleet: Fleet):
    with arena(tmp_path / "arena", names(1)) as made:
        configure(fleet, made, timeout="4s", stall="30s")
        settings = json.loads((made.client / "settings.json").read_text())
        (made.client / "settings.json").write_text(json.dumps({**settings, "pause_s": 1.5}))
        (row,) = run(fleet, "--task", PAD)["results"]
        assert (row["state"], row["score"], row["metrics"]) == ("done", 0.0, {"reason": "timeout"})
        assert carrying(made.containers[0]) == []


def test_restart_between_tasks(waa: Arena, fleet: Fleet):
    """Without the setting there is none: see `test_lists_of_the_container_and_the_checkout`."""
    configure(fleet, waa, reset="restart")
    assert run(fleet, "--domain", "notepad")["tasks"]["done"] == 2
    assert waa.restarts() == 2


def test_a_container_that_failed_is_restarted(waa: Arena, fleet: Fleet):
    waa.fail(PAD[8:], "hang")
    waa.fail(OTHER[8:], "error")  # WAA's code could not reach Windows
    assert run(fleet, "--domain", "notepad")["tasks"]["done"] == 2
    assert waa.restarts() == 2


def test_one_broken_container_does_not_fail_a_task(tmp_path: Path, fleet: Fleet):
    """The next attempt takes another container, whatever worker it is on; the broken one is restarted before its next use."""
    with arena(tmp_path / "arena", names(2)) as made:
        configure(fleet, made)
        made.stick(made.containers[0])
        summary = run(fleet, "--task", PAD)
        assert (summary["results"][0]["score"], made.restarts()) == (score_of(PAD[8:]), 0)
    first, last = attempts(fleet)
    assert (first["kind"], first["blame"], last["outcome"]) == ("environment_failed", "worker", "ok")
    assert f"another attempt tells whether it is {made.containers[0]}" in first["evidence"]
    assert summary["results"][0]["metrics"]["container"] == made.containers[1]


def test_a_result_counts_although_its_program_lives_on(waa: Arena, fleet: Fleet):
    waa.fail(PAD[8:], "linger")
    (row,) = run(fleet, "--task", PAD)["results"]
    assert (row["score"], row["attempts"]) == (score_of(PAD[8:]), 1)
    assert carrying(waa.containers[0]) == []


def test_tasks_ask_the_daemon_that_the_person_uses(waa: Arena, fleet: Fleet):
    """A `docker` that answers only where DOCKER_HOST says, as that of rootless Docker."""
    docker = fleet.folder / "docker"
    docker.write_text(
        f'#!/bin/sh\n[ "$DOCKER_HOST" = unix:///rootless ] || {{ echo "Cannot connect to the Docker daemon" >&2; exit 1; }}\n'
        f'exec {waa.docker}/docker "$@"\n'
    )
    docker.chmod(0o755)
    configure(fleet, waa, docker=str(docker))
    command = ("run", "waa", "--agent", "navi", "--model", "gpt-4o", "--task", PAD)
    done = fleet.command(*command, OPENAI_API_KEY=KEY, DOCKER_HOST="unix:///rootless")
    assert done.returncode == 0, done.stderr


@pytest.mark.long
@pytest.mark.slow
def test_dead_guests_cost_a_handful_of_attempts(waa: Arena, fleet: Fleet):
    configure(fleet, waa, guest_timeout="200ms")
    waa.silence()
    summary = run(fleet, code=3)
    assert summary["state"] == "paused"
    assert summary["attempts"]["total"] < 15
    assert "did not answer /probe" in json.dumps(summary["reason"])


def test_a_dead_guest_holds_its_tasks(waa: Arena, fleet: Fleet):
    configure(fleet, waa, guest_timeout="500ms")
    waa.silence()
    begun = time.monotonic()
    summary = run(fleet, "--task", PAD, code=1)
    (row,) = summary["results"]
    assert (row["state"], row["failure"]["kind"]) == ("held", "environment_failed")
    assert f"guest {waa.containers[0]}: did not answer /probe in time" in row["failure"]["evidence"]
    assert time.monotonic() - begun < 120
