"""A program that is missing is found before anything is written, or pauses the run; it is never a score of 0 %."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.support.fleet import Fleet

QUICK = {"EVALFLEET_BREAKER_PROBE_BASE": "0.01s"}


def run(fleet: Fleet, *commands: list[str], **settings: Any):
    tasks = [{"key": f"t_{number}", "command": command} for number, command in enumerate(commands, 1)]
    return fleet.command("run", fleet.tasks(tasks, retry_base="10ms", **settings), "--json", **QUICK)


@pytest.mark.parametrize("program", ["no-such-agent", "./no-such-agent", "/no/such/agent"])
def test_it_is_refused_at_submission(fleet: Fleet, program: str):
    done = run(fleet, [program, "--fast"])
    assert done.returncode == 2
    for words in ("task 't_1'", repr(program), "Nothing was submitted"):
        assert words in done.stderr
    assert fleet.json("status")["runs"] == []


def test_a_bare_name_is_refused_beside_good_tasks(fleet: Fleet):
    done = run(fleet, ["true"], ["no-such-agent"])
    assert (done.returncode, "task 't_2'" in done.stderr) == (2, True)


def test_a_program_that_an_earlier_task_makes_is_no_mistake(fleet: Fleet):
    make = ["sh", "-c", "printf '#!/bin/sh\\n' > made; chmod +x made"]
    done = run(fleet, make, ["./made"], workers=1)
    assert done.returncode == 0, done.stderr


def test_programs_are_looked_for_as_a_launch_does(fleet: Fleet):
    """Relative to the task file's folder, and on the PATH that the task itself has."""
    (fleet.folder / "bin").mkdir()
    for name in ("here", "bin/there"):
        (fleet.folder / name).write_text("#!/bin/sh\n")
        (fleet.folder / name).chmod(0o755)
    tasks = [
        {"key": "a", "command": ["./here"]},
        {"key": "b", "command": ["there"], "env": {"PATH": f"{fleet.folder}/bin:/usr/bin:/bin"}},
    ]
    assert fleet.command("run", fleet.tasks(tasks)).returncode == 0


@pytest.mark.parametrize(
    "command", [["sh", "-c", "no-such-agent"], ["python3", "no_such_agent.py"], ["python3", "-m", "no_such_agent"]]
)
@pytest.mark.parametrize(("count", "attempts"), [(1, 3), (2, 1)])
def test_a_run_of_few_tasks_pauses_too(fleet: Fleet, command: list[str], count: int, attempts: int):
    done = run(fleet, *[command] * count, attempts=attempts)
    assert done.returncode == 3, done.stderr
    summary = json.loads(done.stdout)
    assert [result["state"] for result in summary["results"]] == ["queued"] * count, "when it is there, all go on"
    assert summary["scores"]["coverage"] == 0


def test_one_task_that_fails_honestly_is_failed(fleet: Fleet):
    done = run(fleet, ["sh", "-c", "echo oh no >&2; exit 1"], attempts=2)
    assert done.returncode == 0, done.stderr
    assert [result["state"] for result in json.loads(done.stdout)["results"]] == ["failed"]
