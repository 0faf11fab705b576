"""Steering a run from another terminal, and a run that nobody drives."""

from __future__ import annotations

from typing import Any

from tests.support.fleet import Fleet, wait_for

GATED = "echo $EVALFLEET_ATTEMPT >> ledger; until [ -e gate ]; do sleep 0.05; done"


def gated(*keys: str) -> list[dict[str, Any]]:
    return [{"key": key, "command": ["sh", "-c", GATED]} for key in keys]


def states(fleet: Fleet) -> dict[str, str]:
    return {row["key"]: row["state"] for row in fleet.json("report")["results"]}


def test_cancel_from_another_terminal(fleet: Fleet):
    controller = fleet.start("run", fleet.tasks(gated("a", "b", "c")), "--workers", "2")
    wait_for(lambda: len(fleet.lines()) == 2, "two tasks to start")
    assert fleet.command("cancel").returncode == 0
    assert controller.wait(30) == 1
    assert set(states(fleet).values()) == {"cancelled"}
    assert fleet.json("report")["state"] == "cancelled"
    assert not fleet.left_processes()
    again = fleet.command("cancel")
    assert (again.returncode, "cancelled already" in again.stderr) == (3, True)


def test_cancel_a_run_that_nobody_drives(fleet: Fleet):
    controller = fleet.start("run", fleet.tasks(gated("a", "b")), "--workers", "2")
    wait_for(lambda: len(fleet.lines()) == 2, "two tasks to start")
    controller.kill()
    controller.wait()
    assert fleet.command("cancel").returncode == 0
    assert set(states(fleet).values()) == {"cancelled"}
    assert not fleet.left_processes()


def test_cancel_before_anything_started(fleet: Fleet):
    fleet.command("run", fleet.tasks(gated("a")), "--detach")
    assert fleet.command("cancel").returncode == 0
    assert states(fleet) == {"a": "cancelled"}
    assert fleet.json("resume", code=1)["state"] == "cancelled"
    assert fleet.lines() == []


def test_hold_and_release_while_it_runs(fleet: Fleet):
    controller = fleet.start("run", fleet.tasks(gated("a", "b", "c")), "--workers", "1")
    wait_for(fleet.lines, "the first task to start")
    assert "held: b, c" in fleet.command("hold", "latest", "b", "c").stdout
    assert "released: c" in fleet.command("release", "latest", "c").stdout
    (fleet.folder / "gate").touch()
    assert controller.wait(30) == 1, "b is held, so coverage is below 1"
    assert states(fleet) == {"a": "done", "b": "held", "c": "done"}
    assert fleet.json("retry", "--only", "held")["tasks"]["done"] == 3


def test_a_running_task_is_held_after_its_attempt(fleet: Fleet):
    script = "echo x >> ledger; until [ -e gate ]; do sleep 0.05; done; exit 1"
    controller = fleet.start("run", fleet.tasks([{"key": "a", "command": ["sh", "-c", script]}]))
    wait_for(fleet.lines, "the task to start")
    assert fleet.command("hold", "latest", "a").returncode == 0
    (fleet.folder / "gate").touch()
    assert controller.wait(30) == 1
    assert states(fleet) == {"a": "held"}
    assert fleet.json("report")["attempts"]["total"] == 1


def test_unknown_keys_and_runs_are_named(fleet: Fleet):
    fleet.command("run", fleet.tasks([{"key": "a", "command": ["true"]}]))
    for args in (("hold", "latest", "nope"), ("release", "latest", "nope"), ("logs", "latest", "nope")):
        done = fleet.command(*args)
        assert done.returncode == 2, done.stdout
        assert "nope" in done.stderr
    for verb in ("resume", "cancel", "report", "status", "events", "judge", "watch", "retry"):
        done = fleet.command(verb, "zzzz")
        assert done.returncode == 2, verb
        assert "zzzz" in done.stderr, verb


def test_retry_gives_failed_tasks_a_fresh_allowance_and_keeps_the_old_attempts(fleet: Fleet):
    tasks = [{"key": "a", "command": ["sh", "-c", "[ -e gate ]"]}, {"key": "b", "command": ["true"]}]
    summary = fleet.json("run", fleet.tasks(tasks, attempts=2, retry_base="1ms"))
    assert (summary["tasks"]["failed"], summary["attempts"]["total"]) == (1, 3)
    (fleet.folder / "gate").touch()
    summary = fleet.json("retry")
    assert (summary["tasks"]["done"], summary["attempts"]["total"]) == (2, 4)
    assert fleet.command("retry").stdout.startswith("0 tasks to retry")
    refused = fleet.command("retry", "--only", "b")
    assert (refused.returncode, "b" in refused.stderr) == (3, True)


def test_ids_may_be_shortened(fleet: Fleet):
    run = fleet.json("run", fleet.tasks([{"key": "a", "command": ["true"]}]))["run"]
    assert fleet.json("report", run[:4])["run"] == run


def test_a_cancel_survives_the_controller_that_obeyed_it(fleet: Fleet):
    stubborn = f"trap '' TERM; {GATED}"  # so that there is time between the cancel and the end
    path = fleet.tasks([{"key": key, "command": ["sh", "-c", stubborn]} for key in ("a", "b")])
    controller = fleet.start("run", path, "--workers", "1")
    wait_for(fleet.lines, "the task to start")
    assert fleet.command("cancel").returncode == 0
    controller.kill()
    controller.wait()
    assert fleet.command("resume").returncode == 1
    assert states(fleet) == {"a": "cancelled", "b": "cancelled"}
    assert len(fleet.lines()) == 1


def test_tasks_of_an_abandoned_run_do_not_hold_memory_for_ever(fleet: Fleet):
    task = {"key": "a", "command": ["sh", "-c", GATED], "requests": {"memory_mb": 600}}
    fleet.env = {"EVALFLEET_LOCAL_MEMORY_MB": "1000", "EVALFLEET_LEASE_DURATION": "1s"}
    controller = fleet.start("run", fleet.tasks([task]))
    wait_for(fleet.lines, "the task to start")
    controller.kill()
    controller.wait()
    (fleet.folder / "gate").touch()
    assert fleet.json("run", fleet.tasks([task]))["tasks"]["done"] == 1


def test_amend_and_pause_while_it_runs(fleet: Fleet):
    controller = fleet.start("run", fleet.tasks(gated("a", "b", "c")), "--workers", "1")
    wait_for(fleet.lines, "the first task to start")
    assert fleet.json("amend", "latest", "--workers", "2")["workers"] == 2
    wait_for(lambda: len(fleet.lines()) == 2, "the new worker to start the second task")
    answer = fleet.json("pause", "latest", "--reason", "lunch")
    assert (answer["pausing"], answer["driven"], answer["state"]) == (2, True, "running")
    (fleet.folder / "gate").touch()
    assert controller.wait(30) == 3
    assert states(fleet)["c"] == "queued", "no task is started after the pause"
    assert fleet.json("amend", "latest", "--budget", "7")["budget_usd"] == 7
    assert fleet.command("resume").returncode == 0
    assert len(fleet.lines()) == 3


def test_pause_a_run_that_no_controller_drives(fleet: Fleet):
    run = fleet.json("run", fleet.tasks([{"key": "a", "command": ["true"]}]), "--detach")["run"]
    done = fleet.command("pause", run, "--reason", "lunch")
    assert (done.returncode, f"`evalfleet resume {run}`" in done.stdout) == (0, True)
    state = fleet.json("status", run)
    assert (state["state"], "lunch" in state["reason"]["message"]) == ("paused", True)
    again = fleet.command("pause", run)
    assert (again.returncode, "is paused" in again.stderr) == (3, True)
    assert fleet.command("amend", run).returncode == 2, "nothing to change"
    assert fleet.command("resume", run).returncode == 0


def test_a_quarantined_worker_gets_no_work_until_it_is_let_go(fleet: Fleet):
    run = fleet.json("run", fleet.tasks([{"key": "a", "command": ["true"]}]), "--workers", "1", "--detach")["run"]
    assert fleet.json("quarantine", run, "local-1", "--reason", "slow")["workers"] == ["local-1"]
    (event,) = (event for event in fleet.events(run) if event["type"] == "worker.quarantined")
    assert event["data"] == {"worker": "local-1", "reason": "slow"}
    assert fleet.json("unquarantine", run, "local-1")["workers"] == []
    again = fleet.command("unquarantine", run, "local-1")
    assert (again.returncode, "is not quarantined" in again.stderr) == (3, True)
    assert fleet.command("resume", run).returncode == 0
