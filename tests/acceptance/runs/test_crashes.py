"""Kill anything: nothing finished is lost or run twice, and work in flight survives its controller."""

from __future__ import annotations

import os
import signal
import subprocess

from tests.support.fleet import Fleet, wait_for

# Says that it starts, waits until the test lets it go (or is killed), and says that it ends.
GATED = "echo start $EVALFLEET_ATTEMPT >> ledger; until [ -e gate ]; do sleep 0.05; done; echo end >> ledger"


def gated(count: int) -> list[dict[str, object]]:
    return [{"key": f"t_{index}", "command": ["sh", "-c", GATED]} for index in range(count)]


def starts(fleet: Fleet) -> list[str]:
    return sorted(line for line in fleet.lines() if line.startswith("start"))


def open_gate(fleet: Fleet) -> None:
    (fleet.folder / "gate").touch()


def kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def test_a_killed_controller_costs_nothing(fleet: Fleet):
    controller = fleet.start("run", fleet.tasks(gated(3)), "--workers", "3")
    wait_for(lambda: len(starts(fleet)) == 3, "three tasks to start")
    kill(controller)
    before = starts(fleet)
    open_gate(fleet)
    summary = fleet.json("resume")
    assert summary["tasks"]["done"] == 3
    assert summary["attempts"]["total"] == 3
    assert starts(fleet) == before
    assert not fleet.left_processes()


def test_tasks_finish_and_keep_their_results_while_nobody_drives(fleet: Fleet):
    controller = fleet.start("run", fleet.tasks(gated(2)), "--workers", "2")
    wait_for(lambda: len(starts(fleet)) == 2, "two tasks to start")
    kill(controller)
    open_gate(fleet)
    wait_for(lambda: fleet.lines().count("end") == 2, "both to end by themselves")
    runner = fleet.runner_pid()
    assert runner is not None
    summary = fleet.json("resume")
    assert summary["tasks"]["done"] == 2
    assert len(starts(fleet)) == 2


def test_results_survive_the_death_of_controller_and_runner(fleet: Fleet):
    controller = fleet.start("run", fleet.tasks(gated(2)), "--workers", "2")
    wait_for(lambda: len(starts(fleet)) == 2, "two tasks to start")
    kill(controller)
    open_gate(fleet)
    ended = fleet.home / "spool" / "attempts"
    wait_for(
        lambda: sum('"ended"' in path.read_text() for path in ended.glob("*/journal.jsonl")) == 2, "both end records"
    )
    pid = fleet.runner_pid()
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    summary = fleet.json("resume")
    assert summary["tasks"]["done"] == 2
    assert summary["attempts"]["by_outcome"].get("lost", 0) == 0
    assert len(starts(fleet)) == 2


def test_a_killed_runner_is_not_the_tasks_fault(fleet: Fleet):
    controller = fleet.start("run", fleet.tasks(gated(2), attempts=1), "--workers", "2")
    wait_for(lambda: len(starts(fleet)) == 2, "two tasks to start")
    pid = fleet.runner_pid()
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: len(starts(fleet)) == 4, "both to be started again")
    open_gate(fleet)
    assert controller.wait(60) == 0
    summary = fleet.json("report")
    assert summary["tasks"]["done"] == 2
    assert summary["failures"] == {"runner_lost": 2}
    assert fleet.lines().count("end") == 2, "what the dead runner left was ended, not left to run on"
    assert not fleet.left_processes()


def test_a_killed_task_is_retried_and_says_by_which_signal(fleet: Fleet):
    suicide = "[ $EVALFLEET_ATTEMPT_NUMBER = 1 ] && kill -9 $$; exit 0"
    summary = fleet.json("run", fleet.tasks([{"key": "a", "command": ["sh", "-c", suicide]}], retry_base="10ms"))
    assert summary["tasks"]["done"] == 1
    assert summary["failures"] == {"signalled": 1}


def test_two_controllers_never_drive_one_run(fleet: Fleet):
    fleet.start("run", fleet.tasks(gated(1)))
    wait_for(lambda: starts(fleet), "the task to start")
    second = fleet.command("resume")
    assert second.returncode == 3
    assert "is driven by process" in second.stderr
    open_gate(fleet)


def test_the_first_interrupt_leaves_tasks_running_and_says_how_to_resume(fleet: Fleet):
    controller = fleet.start("run", fleet.tasks(gated(2)), "--workers", "2")
    wait_for(lambda: len(starts(fleet)) == 2, "two tasks to start")
    controller.send_signal(signal.SIGTERM)
    output, _ = controller.communicate(timeout=60)
    assert controller.returncode == 130
    assert "2 running tasks go on" in output
    assert "evalfleet resume" in output
    open_gate(fleet)
    assert fleet.json("resume")["attempts"]["total"] == 2
    assert len(starts(fleet)) == 2


def test_the_second_interrupt_ends_them_and_the_run_is_still_resumable(fleet: Fleet):
    controller = fleet.start("run", fleet.tasks(gated(2), attempts=1), "--workers", "2")
    wait_for(lambda: len(starts(fleet)) == 2, "two tasks to start")
    controller.send_signal(signal.SIGINT)
    assert controller.stdout is not None
    while "Ctrl-C again" not in controller.stdout.readline():
        pass
    controller.send_signal(signal.SIGINT)
    controller.communicate(timeout=60)
    assert controller.returncode == 130
    assert not fleet.left_processes()
    assert fleet.json("status", "latest")["tasks"]["queued"] == 2
    open_gate(fleet)
    summary = fleet.json("resume")
    assert summary["tasks"]["done"] == 2, "an interruption uses up no attempt"


def test_a_detached_run_waits_for_resume(fleet: Fleet):
    open_gate(fleet)
    submitted = fleet.json("run", fleet.tasks(gated(2)), "--detach")
    assert (submitted["state"], submitted["tasks"]) == ("queued", 2)
    assert not starts(fleet)
    assert fleet.json("resume", submitted["run"])["tasks"]["done"] == 2
