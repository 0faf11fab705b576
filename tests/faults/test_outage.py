"""An outage costs a handful of attempts, says what is wrong, and is over when its cause is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.faults.chaos_command import environment, evalfleet

pytestmark = pytest.mark.slow

TASKS = 40
MOST_ATTEMPTS = 10
QUICK = environment(EVALFLEET_BREAKER_PROBE_BASE="0.2s")


def _write_tasks(folder: Path, commands: list[list[str]]) -> Path:
    lines = [json.dumps({"run": {"retry_base": "0.1s"}})]
    lines += [json.dumps({"key": f"t_{number}", "command": words}) for number, words in enumerate(commands)]
    path = folder / "tasks.jsonl"
    path.write_text("\n".join(lines) + "\n")
    return path


def _report(home: Path) -> dict:
    return json.loads(evalfleet(home, "report", "--json").stdout)


def _events(home: Path) -> list[dict]:
    return [json.loads(line) for line in evalfleet(home, "events", "--json").stdout.splitlines()]


def _make_program(path: Path) -> None:
    path.write_text("#!/bin/sh\nexit 0\n")
    path.chmod(0o755)


def _check_paused(home: Path, cause: str) -> dict:
    report = _report(home)
    assert report["state"] == "paused"
    assert report["attempts"]["total"] <= MOST_ATTEMPTS
    assert report["tasks"]["queued"] == TASKS, "an outage decides no task"
    events = _events(home)
    assert sum(event["type"] == "attempt.claimed" for event in events) == report["attempts"]["total"]
    assert [event["type"] for event in events].count("breaker.opened") == 1
    paused = [event for event in events if event["type"] == "run.paused"]
    assert len(paused) == 1
    assert cause in json.dumps(paused[0]["data"])
    return report


def _check_message(said: str, report: dict, cause: str) -> None:
    """Whoever reads only the last words knows why, and what to do."""
    assert cause in said
    assert "breaker is open" in said
    assert f"evalfleet resume {report['run']}" in said


def _check_recovered(home: Path) -> None:
    report = _report(home)
    assert report["state"] == "completed"
    assert report["tasks"]["done"] == TASKS
    assert report["scores"]["strict"] == report["scores"]["valid"] == 1.0


def _submit_and_lose(folder: Path, home: Path) -> Path:
    """A run whose program was there when it was submitted."""
    program = folder / "agent"
    _make_program(program)
    tasks = _write_tasks(folder, [[str(program)]] * TASKS)
    done = evalfleet(home, "run", str(tasks), "--workers", "8", "--detach", env=QUICK)
    assert done.returncode == 0, done.stderr
    program.unlink()
    return program


def test_a_missing_executable_pauses_the_run_until_it_is_there(tmp_path: Path, home: Path) -> None:
    program = _submit_and_lose(tmp_path, home)

    done = evalfleet(home, "resume", env=QUICK)

    assert done.returncode == 3, done.stdout + done.stderr
    report = _check_paused(home, str(program))
    assert report["attempts"]["total"] >= 3
    _check_message(done.stdout + done.stderr, report, str(program))
    _make_program(program)
    resumed = evalfleet(home, "resume", env=QUICK)
    assert resumed.returncode == 0, resumed.stdout + resumed.stderr
    _check_recovered(home)


def test_a_resume_into_the_same_outage_costs_only_probes(tmp_path: Path, home: Path) -> None:
    _submit_and_lose(tmp_path, home)
    assert evalfleet(home, "resume", env=QUICK).returncode == 3
    before = _report(home)["attempts"]["total"]

    again = evalfleet(home, "resume", "--json", env=QUICK)

    assert again.returncode == 3, again.stdout + again.stderr
    report = json.loads(again.stdout)
    assert report["state"] == "paused"
    assert report["attempts"]["total"] - before <= 3


@pytest.mark.parametrize("python", ["/bin/false", "/nowhere/python3"])
def test_a_runner_that_cannot_start_pauses_the_run(tmp_path: Path, home: Path, python: str) -> None:
    tasks = _write_tasks(tmp_path, [["/bin/true"]] * TASKS)

    done = evalfleet(home, "run", str(tasks), "--workers", "8", env=QUICK | {"EVALFLEET_RUNNER_PYTHON": python})

    assert done.returncode == 3, done.stdout + done.stderr
    report = _check_paused(home, "the runner")
    assert report["attempts"]["total"] == 0
    _check_message(done.stdout + done.stderr, report, python)
    resumed = evalfleet(home, "resume", env=QUICK)
    assert resumed.returncode == 0, resumed.stdout + resumed.stderr
    _check_recovered(home)


@pytest.mark.parametrize("place", [0, TASKS // 2, TASKS - 1], ids=["first", "middle", "last"])
def test_one_missing_executable_is_that_tasks_failure(tmp_path: Path, home: Path, place: int) -> None:
    commands = [["/bin/true"]] * TASKS
    commands[place] = [str(tmp_path / "agent")]
    tasks = _write_tasks(tmp_path, commands)

    done = evalfleet(home, "run", str(tasks), "--workers", "8", env=QUICK)

    assert done.returncode == 0, done.stdout + done.stderr
    report = _report(home)
    assert report["tasks"]["done"] == TASKS - 1
    failed = [one for one in report["results"] if one["state"] == "failed"]
    assert [one["key"] for one in failed] == [f"t_{place}"]
    assert (failed[0]["failure"]["kind"], failed[0]["failure"]["blame"]) == ("launch_failed", "task")
    assert not [event for event in _events(home) if event["type"].startswith("breaker.")]
