"""Steering and reading runs from Python: cancel, retry, pause, tasks, logs, progress."""

from __future__ import annotations

import anyio
import anyio.to_thread
import pytest
from tests.support.api_scripts import by_key, drive_until, gated, open_gate, plain, sh
from tests.support.fleet import Fleet, wait_for

import evalfleet
from evalfleet import api, errors


@pytest.fixture(autouse=True)
def _in_the_fleet(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a script sees: the fleet's home, and its folder as the current one."""
    monkeypatch.setenv("EVALFLEET_HOME", str(fleet.home))
    monkeypatch.chdir(fleet.folder)


def test_cancel_and_retry(fleet: Fleet):
    run = evalfleet.submit([sh("a"), sh("b", "test -e go"), gated("c")], attempts=1, workers=3)
    drive_until(run, lambda: fleet.lines() and run.summary().tasks.running == 1)
    run.cancel()
    assert {key: result.state for key, result in by_key(run).items()} == {
        "a": "done", "b": "failed", "c": "cancelled"
    }  # fmt: skip
    assert run.state == "cancelled"
    run.cancel()  # again is harmless
    assert fleet.left_processes() == []

    assert run.retry(only="cancelled") == ["c"]
    with pytest.raises(errors.WrongState):
        run.retry(["a"])
    assert run.retry() == ["b"]
    assert run.state == "running"
    open_gate(fleet)
    assert run.wait().tasks.done == 3
    assert run.retry() == []
    assert run.state == "completed"


def test_cancel_of_a_run_that_another_process_drives(fleet: Fleet):
    process = fleet.start("run", fleet.tasks([gated("a"), gated("b")]), "--workers", "1")
    wait_for(fleet.lines, "the task")
    run = evalfleet.open_run()
    run.cancel()
    assert run.wait().state == "cancelled"
    assert process.wait(60) == 1


def test_cancel_before_anything_ran(fleet: Fleet):
    run = evalfleet.submit([sh("a")])
    run.cancel()
    assert run.wait().tasks.cancelled == 1
    assert not (fleet.home / "spool").exists()


def test_a_run_is_steered(fleet: Fleet):
    run = evalfleet.submit([sh("a"), sh("b")], workers=1)
    assert run.hold("b", "not yet") == ["b"]
    assert run.tasks(states="held")[0].reason == "not yet"
    assert run.release(["b"]) == ["b"]
    assert run.amend(workers=2, budget_usd=3.0).workers == 2
    assert run.quarantine("local-1") == ["local-1"]
    assert run.unquarantine("local-1") == []
    assert (run.pause("lunch").pausing, run.state) == (0, "paused")
    with pytest.raises(errors.WrongState):
        run.pause()
    with pytest.raises(errors.InputError):
        run.amend()
    assert run.wait().state == "completed", "waiting takes the pause back"
    assert run.judge(dry_run=True).changes == []


def test_pause_of_a_run_that_another_process_drives(fleet: Fleet):
    controller = fleet.start("run", fleet.tasks([gated("a"), gated("b")]), "--workers", "1")
    wait_for(fleet.lines, "the first task to start")
    run = evalfleet.open_run()
    answer = run.pause()
    assert (answer.driven, answer.pausing) == (True, 1)
    open_gate(fleet)
    assert controller.wait(30) == 3
    assert (run.state, [task.key for task in run.tasks(states=["queued"])]) == ("paused", ["b"])


def test_tasks_logs_and_artifacts(fleet: Fleet):
    left = "echo out; echo err >&2; printf xyz > $EVALFLEET_ARTIFACTS/f.bin"
    run = evalfleet.submit([sh("a", left), sh("b", "exit 1")], attempts=2, retry_base=0.01)
    run.wait()
    assert [task.key for task in run.tasks(failed=True)] == ["b"]
    assert [task.key for task in run.tasks(sort="-number")] == ["b", "a"]
    assert (run.log("a"), run.log("a", "stderr"), run.log("b", attempt=1)) == ("out\n", "err\n", "")
    assert [(one.path, one.size) for one in run.artifacts("a")] == [("f.bin", 3)]
    assert run.artifact("a", "f.bin") == b"xyz"
    for wrong in (
        lambda: run.log("a", "stdin"),
        lambda: run.log("nope"),
        lambda: run.artifact("a", "../stdout.log"),
        lambda: run.artifacts("a", attempt=9),
        lambda: run.tasks(sort="luck"),
        lambda: run.tasks(states="asleep"),
    ):
        with pytest.raises(errors.InputError):
            wrong()


def test_runs_are_listed(fleet: Fleet):
    assert evalfleet.list_runs() == []
    first = evalfleet.submit([sh("a")], name="first")
    second = evalfleet.submit([sh("a")], name="second")
    first.wait()
    assert [row.run for row in evalfleet.list_runs()] == [second.id, first.id]
    assert [row.run for row in evalfleet.list_runs(states="completed")] == [first.id]
    assert [row.run for row in evalfleet.list_runs(search="eco", limit=1)] == [second.id]
    assert plain(evalfleet.list_runs()) == fleet.json("status")["runs"]
    with pytest.raises(errors.InputError):
        evalfleet.list_runs(states="asleep")


def test_progress_while_waiting(fleet: Fleet):
    seen: list[tuple[int, int]] = []
    run = evalfleet.submit([sh("a"), sh("b")])
    run.wait(progress=lambda state: seen.append((state.settled, state.total)))
    assert seen[-1] == (2, 2)
    assert run.progress().settled == 2


def test_progress_of_a_run_that_another_process_drives(fleet: Fleet):
    controller = fleet.start("run", fleet.tasks([gated()]))
    wait_for(fleet.lines, "the task to start")
    seen: list[int] = []

    def told(state: api.LiveState) -> None:
        seen.append(state.settled)
        open_gate(fleet)

    evalfleet.open_run().wait(progress=told)
    assert seen[0] == 0
    assert controller.wait(30) == 0


def test_every_method_that_waits_has_a_twin(fleet: Fleet):
    for kind in (api.RunHandle, api.StudyHandle):
        plain = {name for name in dir(kind) if not name.startswith("_") and not name.endswith("_async")}
        alone = {name for name in plain if callable(getattr(kind, name)) and not hasattr(kind, f"{name}_async")}
        assert alone <= {"events"}, "an iterator, which reads a page at a time"

    async def main() -> None:
        run = evalfleet.submit([sh("a", "echo out")])
        assert await run.hold_async("a") == ["a"]
        assert await run.release_async(keys="a") == ["a"]
        await run.wait_async()
        assert (await run.log_async("a"), (await run.summary_async()).state) == ("out\n", "completed")

    anyio.run(main)
