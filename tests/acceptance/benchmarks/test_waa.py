"""Windows Agent Arena through its stand-in: a real `docker` command, a real daemon, real processes in its "containers"."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from examples.fake_waa.arena import Arena, arena
from examples.fake_waa.client import score_of
from tests.support.fleet import Fleet, wait_for

from evalfleet.benchmarks.waa.catalogue import index
from evalfleet.runner.attempt.process_tree import stat_of

KEY = "sk-very-hidden-0123456789"
PAD, OTHER = (f"notepad/{task}" for task in index()["notepad"])
TASKS = [(domain, task) for domain, ids in index().items() for task in ids]

pytestmark = pytest.mark.timeout(300)


def names(count: int) -> tuple[str, ...]:
    # Names of containers are the machine's: several tests run at the same time.
    mark = uuid.uuid4().hex[:8]
    return tuple(f"waa-{mark}-{number}" for number in range(count))


@pytest.fixture
def waa(tmp_path: Path, fleet: Fleet) -> Iterator[Arena]:
    """One container, with limits that fit a stand-in."""
    with arena(tmp_path / "arena", names(1)) as made:
        configure(fleet, made)
        yield made


@pytest.fixture(scope="module")
def standing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Arena]:
    """One for those who only look at it."""
    with arena(tmp_path_factory.mktemp("standing") / "arena", names(1)) as made:
        yield made


def configure(fleet: Fleet, made: Arena, **more: object) -> None:
    limits = {"timeout": "60s", "stall": "8s", "guest_timeout": "30s", "poll": "100ms", "disk_gb": 0}
    (fleet.folder / "evalfleet.toml").write_text(made.config(**{**limits, **more}))


def run(fleet: Fleet, *args: str, code: int = 0, agent: str = "navi", key: str = KEY) -> dict[str, Any]:
    command = ("run", "waa", "--agent", agent, "--model", "gpt-4o", *args, "--json")
    process = fleet.start(*command, OPENAI_API_KEY=key)
    output, _ = process.communicate(timeout=280)
    assert process.returncode == code, output
    return json.loads(output)


def attempts(fleet: Fleet) -> list[dict[str, Any]]:
    """How every attempt ended, in the order of the ends."""
    ends = [event for event in fleet.events() if event["type"] == "attempt.finished"]
    return [{"task": event["task"], **event["data"]} for event in ends]


def carrying(container: str) -> list[int]:
    """Processes that run in a container."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                environ = (entry / "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            if any(
                one.startswith(b"EVALFLEET_CONTAINER=") and one.endswith(f"/{container}".encode()) for one in environ
            ):
                found.append(int(entry.name))
    return found


def sleepers(container: str) -> list[int]:
    """Those that run.py started in a session of their own."""
    return [pid for pid in carrying(container) if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"sleep\0")]


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


def test_progress_and_files_of_a_task(waa: Arena, fleet: Fleet):
    summary = run(fleet, "--task", PAD, "--option", f"checkout={waa.folder}")
    (row,) = summary["results"]
    assert (row["key"], row["domain"], row["score"], row["steps"]) == (PAD, "notepad", score_of(PAD[8:]), 3)
    lines = [line for event in fleet.events() for line in event["data"].get("lines", [])]
    assert lines[0]["ready"] is True
    assert lines[0]["note"] == f"Do {PAD[8:]}. (in {waa.containers[0]})"
    assert [line["step"] for line in lines if "step" in line] == [0, 1, 2, 3]
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


def test_a_leftover_of_a_killed_attempt_is_ended_by_the_next(waa: Arena, fleet: Fleet):
    """Should all else fail: something with the container's mark runs there that nobody looks after."""
    container = waa.containers[0]
    left = subprocess.Popen(["sleep", "3600"], env={"EVALFLEET_CONTAINER": f"{waa.folder}/results/{container}"})
    try:
        assert run(fleet, "--task", PAD)["tasks"]["done"] == 1
        assert left.wait(30) == -signal.SIGKILL
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
    assert run(fleet, "--domain", "notepad")["tasks"]["done"] == 2
    assert waa.restarts() == 0
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


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("401 Incorrect API key provided", "status 401: Incorrect API key provided"),
        ("404 The model `gpt-4o` does not exist", "The model `gpt-4o` does not exist"),
        ("400 Unsupported parameter: max_tokens", "Unsupported parameter: max_tokens"),
    ],
)
def test_an_endpoint_that_refuses_is_named_before_the_first_task(waa: Arena, fleet: Fleet, answer: str, said: str):
    waa.fail_model(answer)
    begun = time.monotonic()
    summary = run(fleet, "--domain", "notepad", code=3)
    assert time.monotonic() - begun < 60
    assert summary["state"] == "paused"
    assert said in json.dumps(summary["reason"])
    assert {one["kind"] for one in attempts(fleet)} == {"service_refused"}
    assert KEY not in json.dumps(summary)


def test_an_endpoint_that_fails_in_the_middle_is_named(waa: Arena, fleet: Fleet):
    """run.py would ask 30 times and tell nothing."""
    settings = json.loads((waa.client / "settings.json").read_text())
    (waa.client / "settings.json").write_text(json.dumps({**settings, "pause_s": 0.5}))
    process = fleet.start("run", "waa", "--agent", "navi", "--model", "m", "--task", PAD, OPENAI_API_KEY=KEY)
    asked = waa.docker / "model-keys"
    wait_for(lambda: asked.exists() and len(asked.read_text().splitlines()) >= 2, "the model to be asked by run.py")
    waa.fail_model("401 Your key was revoked")
    wait_for(lambda: attempts(fleet), "the first attempt to end")
    waa.fail_model(None)
    assert process.wait(60) in (0, 3)
    first = attempts(fleet)[0]
    assert (first["kind"], "status 401: Your key was revoked" in first["evidence"]) == ("service_refused", True)


def test_tokens_and_their_cost_are_counted(waa: Arena, fleet: Fleet):
    summary = run(fleet, "--task", PAD)
    (row,) = summary["results"]
    assert row["metrics"]["tokens"] == 3 * 1050
    lines = [line for event in fleet.events() for line in event["data"].get("lines", [])]
    assert sum(line.get("cost_usd", 0) for line in lines) == pytest.approx(3 * (1000 * 2 + 50 * 10) / 1e6)
    assert waa.model_keys() == {f"Bearer {KEY}"}


def test_a_result_counts_although_its_program_lives_on(waa: Arena, fleet: Fleet):
    waa.fail(PAD[8:], "linger")
    (row,) = run(fleet, "--task", PAD)["results"]
    assert (row["score"], row["attempts"]) == (score_of(PAD[8:]), 1)
    assert carrying(waa.containers[0]) == []


def test_the_key_is_nowhere_in_the_container(waa: Arena, fleet: Fleet):
    waa.fail(PAD[8:], "stop")
    process = fleet.start("run", "waa", "--agent", "navi", "--model", "m", "--task", PAD, OPENAI_API_KEY=KEY)
    (pid,) = wait_for(lambda: sleepers(waa.containers[0]), "the agent to act")
    environ = Path(f"/proc/{pid}/environ").read_bytes()
    assert KEY.encode() not in environ
    assert b"OPENAI_API_KEY=evalfleet-" in environ  # what our proxy takes, and nobody else
    assert waa.model_keys() == {f"Bearer {KEY}"}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                assert KEY.encode() not in (entry / "cmdline").read_bytes()
            except OSError:
                continue
    acting = stat_of(pid)
    assert acting
    os.kill(acting.parent, signal.SIGKILL)  # it has shown all that it has to; nobody needs to wait for its stall
    assert process.wait(60) == 0
    (waa.docker / "model-keys").unlink()  # the endpoint's own record
    for folder in (fleet.home, waa.folder, fleet.folder):
        found = subprocess.run(["grep", "-rlaF", KEY, str(folder)], capture_output=True, text=True, check=False)
        assert found.stdout == ""


def test_keys_that_run_py_cannot_use_are_refused(waa: Arena, fleet: Fleet):
    command = ("run", "waa", "--agent", "navi", "--model", "m", "--task", PAD)
    azure = fleet.command(*command, AZURE_API_KEY=KEY, AZURE_ENDPOINT="https://example.invalid/")
    assert azure.returncode == 2
    assert "WAA's run.py asks OpenAI's API only" in azure.stderr
    none = fleet.command(*command)
    assert none.returncode == 2
    assert "navi needs a key: export OPENAI_API_KEY=…" in none.stderr


def test_a_download_that_was_cut_off_is_made_again(waa: Arena, fleet: Fleet):
    cut = waa.client / "cache" / PAD[8:] / "gold.xlsx"
    cut.parent.mkdir(parents=True)
    cut.touch()
    other = waa.client / "cache" / OTHER[8:] / "gold.xlsx"
    other.parent.mkdir(parents=True)
    other.touch()
    assert run(fleet, "--task", PAD)["tasks"]["done"] == 1
    assert (cut.exists(), other.exists()) == (False, True)


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


def test_lists_of_the_container_and_the_checkout(waa: Arena, fleet: Fleet):
    assert run(fleet, "--option", "list=test_small.json")["tasks"]["total"] == 2
    again = run(
        fleet, "--option", "list=test_small.json", "--option", f"checkout={waa.folder}", "--repeat", "2", "--tasks", "1"
    )
    assert [row["key"] for row in again["results"]] == [PAD, f"{PAD}_1"]


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ((), "waa needs --agent: navi"),
        (("--agent", "oracle"), "--agent oracle: waa brings its own agents"),
        (("--agent", "my:Agent"), "--agent my:Agent: waa brings its own agents"),
        (("--agent", "navi", "--domain", "word"), '--domain: no domain matches "word"; known here: chrome, clock'),
        (("--agent", "navi", "--task", "notepad/none"), 'waa has no task "notepad/none"'),
        (("--agent", "navi", "--option", "checkout=nowhere"), "option checkout: there is no folder nowhere"),
        (("--agent", "navi", "--option", "checkout=."), "option checkout: . is not a checkout of WindowsAgentArena"),
        (("--agent", "navi", "--json-name", "x.json"), "option list=x.json: docker exec failed: cat: "),
        (("--agent", "navi", "--model", "-x"), "--model '-x': is not the name of a model"),
    ],
)
def test_bad_input(standing: Arena, fleet: Fleet, args: tuple[str, ...], said: str):
    configure(fleet, standing)
    done = fleet.command("run", "waa", "--model", "m", *args, OPENAI_API_KEY=KEY)
    assert done.returncode == 2
    assert said in done.stderr
    assert not fleet.home.exists()


def test_options_of_waa_are_refused_elsewhere(fleet: Fleet):
    done = fleet.command("run", "miniwob", "--agent", "random", "--option", "checkout=.")
    assert done.returncode == 2
    assert "option checkout: is not known; miniwob takes no options of its own" in done.stderr


def test_prepare(waa: Arena, fleet: Fleet):
    told = fleet.json("prepare", "waa")
    assert told["ready"] is True
    assert [(check["check"], check["container"]) for check in told["checks"]] == [
        ("disk", None),
        ("docker", None),
        ("kvm", None),
        ("image", None),
        ("container", waa.containers[0]),
        ("guest", waa.containers[0]),
    ]
    configure(fleet, waa, docker="docker")
    done = fleet.command("prepare", "waa", PATH=f"{waa.docker}:{os.environ['PATH']}")
    assert "+ docker: version 28.0.0-emulated" in done.stdout
    assert done.stdout.endswith("waa is ready\n")


def test_prepare_names_the_rung(waa: Arena, fleet: Fleet):
    configure(fleet, waa, guest_timeout="1s")
    waa.silence()
    done = fleet.command("prepare", "waa")
    assert done.returncode == 3
    assert f"guest {waa.containers[0]}" in done.stdout
    assert "did not answer /probe within 1 s" in done.stdout
    configure(fleet, waa, containers=["no-such-container"])
    told = fleet.json("prepare", "waa", code=3)
    assert told["checks"][-1]["check"] == "container"
    assert "no golden image is configured" in told["checks"][-1]["seen"]
    refused = fleet.command("run", "waa", "--agent", "other")
    assert refused.returncode == 2
    assert "container no-such-container (there is none)" in refused.stderr
    configure(fleet, waa, docker="/no/docker")
    told = fleet.json("prepare", "waa", code=3)
    assert told["checks"][-1]["seen"] == "/no/docker cannot be started: No such file or directory"


def test_prepare_starts_what_is_not_up(waa: Arena, fleet: Fleet):
    name = f"{waa.containers[0]}-new"
    storage = fleet.folder / name
    storage.mkdir()
    (storage / "data.img").touch()
    configure(fleet, waa, containers=[name], storage=str(fleet.folder / "{container}"))
    told = fleet.json("prepare", "waa")
    assert told["checks"][4]["seen"] == "started"
    assert run(fleet, "--task", PAD)["tasks"]["done"] == 1


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
