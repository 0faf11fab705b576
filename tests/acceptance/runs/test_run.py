"""The contract with tasks and with the people who run them: exits, verdicts, limits, distribution, exit codes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import Any

import pytest
from tests.support.fleet import Fleet


def sh(script: str, key: str = "a_1", **more: Any) -> dict[str, Any]:
    return {"key": key, "command": ["sh", "-c", script], **more}


def outcome(fleet: Fleet, task: dict[str, Any], code: int = 0, **run: Any) -> dict[str, Any]:
    """The one result of a run with one task and one attempt."""
    summary = fleet.json("run", fleet.tasks([task], **{"attempts": 1, **run}), code=code)
    return summary["results"][0]


RESULT = "printf '%s' '{}' > $EVALFLEET_RESULT"


@pytest.mark.parametrize(
    ("script", "run", "state", "score", "kind"),
    [
        (RESULT.format('{"score": 0.5, "steps": 7}'), {}, "done", 0.5, None),
        (RESULT.format('{"success": false}'), {}, "done", 0.0, None),
        ("exit 0", {}, "done", 1.0, None),
        ("exit 0", {"result": "required"}, "failed", None, "result_missing"),
        ("echo '{oops' > $EVALFLEET_RESULT", {}, "failed", None, "result_unreadable"),
        (RESULT.format('{"score": 7}'), {}, "failed", None, "result_unreadable"),
        (RESULT.format('{"error": "no such window"}'), {}, "failed", None, "task_error"),
        ("exit 3", {}, "failed", None, "bad_exit"),
        (RESULT.format('{"score": 1}') + "; exit 3", {}, "failed", None, "bad_exit"),
        ("exit 3", {"exit_is_verdict": True}, "done", 0.0, None),
        ("kill -TERM $$", {"exit_is_verdict": True}, "failed", None, "signalled"),
        ("sleep 60", {"timeout": "300ms", "exit_is_verdict": True}, "held", None, "stall"),
        ("while :; do echo x; sleep 0.05; done", {"timeout": "400ms"}, "failed", None, "timeout"),
        (
            "while :; do echo x; sleep 0.05; done",
            {"timeout": "400ms", "timeout_is_verdict": True},
            "done",
            0.0,
            None,
        ),
        ("echo x; sleep 60", {"stall": "300ms"}, "held", None, "stall"),
        ("sleep 60", {"start_timeout": "300ms"}, "held", None, "start_timeout"),
        ("echo '{\"ready\": true}' >> $EVALFLEET_EVENTS; sleep 0.5", {"start_timeout": "20s"}, "done", 1.0, None),
        ("echo 'No space left on device' >&2; exit 1", {}, "held", None, "disk_full"),
    ],
)
def test_the_table_of_exits(
    fleet: Fleet, script: str, run: dict[str, Any], state: str, score: float | None, kind: str | None
):
    code = 0 if state != "held" else 1
    result = outcome(fleet, sh(script), code, max_lost=1, **run)
    assert (result["state"], result["score"]) == (state, score)
    assert (result["failure"] or {}).get("kind") == kind


def test_a_missing_executable_is_a_launch_failure_of_that_task(fleet: Fleet):
    tasks = [sh("true", "b"), {"key": "a", "command": ["/no/such/agent"]}]
    result = fleet.json("run", fleet.tasks(tasks, attempts=1), "--workers", "1")["results"][1]
    assert result["failure"]["kind"] == "launch_failed"
    assert "/no/such/agent" in result["failure"]["evidence"]
    assert result["failure"]["blame"] == "task"


def test_what_a_task_sees(fleet: Fleet):
    script = (
        "cp $EVALFLEET_TASK $EVALFLEET_ARTIFACTS/task.json; echo $A $PYTHONUNBUFFERED; pwd;"
        'echo \'{"step": 3, "cost_usd": 0.25, "note": "clicked"}\' >> $EVALFLEET_EVENTS;'
        "echo oh >&2"
    )
    task = sh(script, "notepad_1", env={"A": "one"}, payload={"any": ["json", 1]})
    summary = fleet.json("run", fleet.tasks([task]))
    result = summary["results"][0]
    assert (result["domain"], result["worker"]) == ("notepad", "local-1")
    assert summary["cost"]["total_usd"] == pytest.approx(0.25)
    [folder] = (fleet.home / "runs" / summary["run"]).glob("notepad_1-*/1")
    seen = json.loads((folder / "artifacts" / "task.json").read_text())
    assert (seen["key"], seen["payload"]) == ("notepad_1", {"any": ["json", 1]})
    assert (folder / "stdout.log").read_text() == f"one 1\n{fleet.folder}\n"
    assert fleet.command("logs", "latest", "notepad_1", "--stderr").stdout == "oh\n"
    progressed = [event for event in fleet.events() if event["type"] == "attempt.progressed"]
    assert progressed[0]["data"]["lines"][0]["note"] == "clicked"


def test_only_plain_variables_are_inherited(fleet: Fleet):
    fleet.command("run", fleet.tasks([sh("env")]), CHATTY="yes", LC_ALL="C.UTF-8")
    seen = fleet.command("logs", "latest", "a_1").stdout
    assert "LC_ALL=C.UTF-8" in seen
    assert "CHATTY" not in seen


def test_standard_input_and_a_name(fleet: Fleet):
    done = subprocess.run(
        [sys.executable, "-m", "evalfleet", "run", "-", "--name", "piped", "--json", "--home", str(fleet.home)],
        input='{"key": "a", "command": ["true"]}\n',
        text=True,
        capture_output=True,
        cwd=fleet.folder,
        timeout=60,
        check=False,
    )
    assert json.loads(done.stdout)["name"] == "piped", done.stderr


def test_retries_go_to_another_worker_first(fleet: Fleet):
    tasks = [sh("[ $EVALFLEET_ATTEMPT_NUMBER = 2 ]", "flaky"), *(sh("sleep 0.2", f"t_{n}") for n in range(6))]
    fleet.command("run", fleet.tasks(tasks, retry_base="1ms"), "--workers", "3")
    workers = [e["data"]["worker"] for e in fleet.events() if e["type"] == "attempt.claimed" and e["task"] == "flaky"]
    assert len(workers) == 2
    assert workers[0] != workers[1]


def test_round_robin_keeps_fixed_shards(fleet: Fleet):
    tasks = [sh("true", f"t_{number}") for number in range(1, 10)]
    summary = fleet.json("run", fleet.tasks(tasks), "--workers", "3", "--distribution", "round-robin")
    assert [row["worker"] for row in summary["results"]] == ["local-1", "local-2", "local-3"] * 3


def test_memory_requests_are_kept_apart(fleet: Fleet):
    script = "echo + >> ledger; sleep 0.2; echo - >> ledger"
    tasks = [sh(script, f"t_{n}", requests={"memory_mb": 600}) for n in range(4)]
    summary = fleet.json("run", fleet.tasks(tasks), "--workers", "4", EVALFLEET_LOCAL_MEMORY_MB="1000")
    assert summary["tasks"]["done"] == 4
    assert "".join(fleet.lines()) == "+-" * 4


def test_a_task_that_asks_for_too_much_is_held_with_the_reason(fleet: Fleet):
    tasks = [sh("true", "small"), sh("true", "large", requests={"memory_mb": 4000, "gpus": 2})]
    summary = fleet.json("run", fleet.tasks(tasks), code=1, EVALFLEET_LOCAL_MEMORY_MB="1000")
    assert (summary["tasks"]["done"], summary["tasks"]["held"]) == (1, 1)
    assert summary["attempts"]["total"] == 1
    assert "no host has" in fleet.command("status", "latest").stdout + fleet.command("report").stdout


def test_a_budget_is_never_passed(fleet: Fleet):
    script = "echo '{\"cost_usd\": 1.0}' >> $EVALFLEET_EVENTS"
    tasks = [sh(script, f"t_{n}") for n in range(12)]
    path = fleet.tasks(tasks, budget_usd=5.0)
    done = fleet.command("run", path, "--workers", "4")
    assert done.returncode == 3
    assert "budget" in done.stdout
    summary = fleet.json("report")
    assert (summary["state"], summary["tasks"]["done"]) == ("paused", 5)
    assert summary["cost"]["total_usd"] == pytest.approx(5.0)
    summary = fleet.json("resume", "--budget", "50")
    assert summary["tasks"]["done"] == 12


SPENDING = "for n in 1 2 3 4 5 6 7 8; do echo '{\"cost_usd\": 0.25}' >> $EVALFLEET_EVENTS; sleep 0.3; done; sleep 60"


def test_an_attempt_ends_where_it_passes_what_it_may_cost(fleet: Fleet):
    tasks = [sh(SPENDING, "dear", max_cost_usd=0.6), sh("echo '{\"cost_usd\": 0.5}' >> $EVALFLEET_EVENTS", "fair")]
    summary = fleet.json("run", fleet.tasks(tasks, budget_usd=2.0, max_cost_usd=0.5), "--workers", "2", code=0)
    dear, fair = sorted(summary["results"], key=lambda row: row["key"])
    assert (dear["state"], dear["failure"]["kind"], dear["attempts"]) == ("failed", "cost_limit", 1)
    assert fair["state"] == "done"
    assert summary["cost"]["total_usd"] == pytest.approx(0.75 + 0.5)
    assert summary["cost"]["waste"] == {"failed": 0.75}


def test_attempts_that_report_are_stopped_at_the_budget(fleet: Fleet):
    path = fleet.tasks([sh(SPENDING, "a"), sh(SPENDING, "b")], budget_usd=0.6)
    summary = fleet.json("run", path, "--workers", "2", code=3)
    assert (summary["tasks"]["queued"], summary["reason"]["cause"]) == (2, "budget")
    assert summary["attempts"]["by_outcome"]["cancelled"] == summary["attempts"]["total"] == 1
    assert 0.75 <= summary["cost"]["total_usd"] <= 1.5


def test_accept_decides_the_exit_code(fleet: Fleet):
    tasks = [sh("true", f"t_{n}") for n in range(3)] + [sh("true", "big", requests={"gpus": 8})]
    assert fleet.command("run", fleet.tasks(tasks)).returncode == 1
    assert fleet.command("run", fleet.tasks(tasks, accept=0.75)).returncode == 0


HOSTILE = [
    "../../x",
    "a b",
    "line\nbreak",
    "emoji 🚀",
    "x" * 300,
    "-rf",
    "\x1b[31mred",
    ".",
    "[red]rich[/red]",
    "$(reboot)",
]


def test_hostile_names_stay_in_their_folder(fleet: Fleet):
    summary = fleet.json("run", fleet.tasks([sh("echo hi", key) for key in HOSTILE]), "--workers", "4")
    assert summary["tasks"]["done"] == len(HOSTILE)
    assert [row["key"] for row in summary["results"]] == HOSTILE
    folders = [path for path in (fleet.home / "runs" / summary["run"]).iterdir() if path.is_dir()]
    assert len(folders) == len(HOSTILE)
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,60}", path.name) for path in folders)
    assert not (fleet.home / "x").exists()
    assert fleet.command("logs", "latest", "../../x").stdout == "hi\n"
    for text in (
        fleet.command("report").stdout,
        fleet.command("events").stdout,
        fleet.command("status", "latest").stdout,
    ):
        assert "\x1b[31m" not in text


def test_the_live_file_follows_the_run(fleet: Fleet):
    summary = fleet.json(
        "run", fleet.tasks([sh("true", f"t_{n}") for n in range(3)] + [sh("exit 1", "bad")], attempts=1)
    )
    live = json.loads((fleet.home / "runs" / summary["run"] / "parallel_live.json").read_text())
    assert live["status"] == "completed"
    assert live["total_tasks"] == 4
    assert live["workers"][0].keys() >= {"name", "status", "assigned", "completed", "current_task"}
    assert sum(worker["completed"] for worker in live["workers"]) >= 3


def test_a_cheap_crash_does_not_open_the_purse(fleet: Fleet):
    cost = "echo '{\"cost_usd\": %s}' >> $EVALFLEET_EVENTS"
    tasks = [sh(cost % "0.01" + "; exit 1", "crash"), *(sh(cost % "1.0", f"t_{n}") for n in range(8))]
    summary = fleet.json("run", fleet.tasks(tasks, budget_usd=3.5, attempts=1), "--workers", "4", code=3)
    assert summary["cost"]["total_usd"] in (pytest.approx(3.0), pytest.approx(3.01)), "the crash may come at any time"


def test_any_variable_that_a_process_can_be_given(fleet: Fleet):
    fleet.json("run", fleet.tasks([{"key": "a", "command": ["env"], "env": {"A-B": "1", "x.y": "2"}}]))
    assert {"A-B=1", "x.y=2"} <= set(fleet.command("logs", "latest", "a").stdout.splitlines())


def test_a_task_that_is_too_large_is_refused(fleet: Fleet):
    path = fleet.folder / "tasks.toml"
    path.write_text(f'[[task]]\nkey = "a"\ncommand = ["true"]\npayload = "{"x" * (2 << 20)}"\n')
    done = fleet.command("run", str(path))
    assert done.returncode == 2
    assert "1 MiB" in done.stderr


def test_a_task_that_closes_its_folders_costs_only_itself(fleet: Fleet):
    script = "mkdir $EVALFLEET_ARTIFACTS/in; chmod 0 $EVALFLEET_ARTIFACTS/in $EVALFLEET_ARTIFACTS"
    summary = fleet.json("run", fleet.tasks([sh(script), sh("true", "b")]))
    assert summary["tasks"]["done"] == 2


def test_a_pipe_of_tasks_starts_them_in_the_current_folder(fleet: Fleet):
    command = f'{sys.executable} -m evalfleet run <(echo \'{{"key": "a", "command": ["pwd"]}}\') --json'
    env = {"EVALFLEET_HOME": str(fleet.home), "PATH": "/usr/bin:/bin"}
    subprocess.run(["bash", "-c", command], cwd=fleet.folder, check=True, timeout=60, capture_output=True, env=env)
    assert fleet.command("logs", "latest", "a").stdout.strip() == str(fleet.folder)


def test_a_budget_is_remembered_by_the_next_controller(fleet: Fleet):
    script = "echo '{\"cost_usd\": 1.0}' >> $EVALFLEET_EVENTS"
    path = fleet.tasks([sh(script, f"t_{n}") for n in range(6)], budget_usd=2.0)
    assert fleet.json("run", path, code=3)["cost"]["total_usd"] == pytest.approx(2.0)
    assert fleet.json("resume", code=3)["attempts"]["total"] == 2
    for bad in ("nan", "inf", "-1"):
        assert fleet.command("resume", "--budget", bad).returncode == 2


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_a_report_that_cannot_be_printed_costs_no_run(fleet: Fleet, more: tuple[str, ...]):
    """Standard output is on a full disk: the run comes to its end, and the code says that its answer was lost."""
    path = fleet.tasks([sh("true", f"t_{n}") for n in range(3)])
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "evalfleet", "run", path, *more],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            cwd=fleet.folder,
            env=fleet.environment(),
            timeout=60,
            check=False,
        )
    assert done.returncode == 2
    assert done.stderr.count("cannot write to standard output: No space left on device") == 1
    assert "Exception" not in done.stderr
    assert fleet.json("report")["tasks"]["done"] == 3
