"""The Python interface: the same engine, driven from a script."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from tests.support.api_scripts import by_key, drive_until, gated, open_gate, plain, sh
from tests.support.fleet import Fleet, wait_for

import evalfleet
from evalfleet import api, errors
from evalfleet.model import Verb
from evalfleet.operations.runs.request import ask_or_do
from evalfleet.store.open import open_reader, open_store
from evalfleet.taskfile import row

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def _in_the_fleet(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a script sees: the fleet's home, and its folder as the current one."""
    monkeypatch.setenv("EVALFLEET_HOME", str(fleet.home))
    monkeypatch.chdir(fleet.folder)


def test_submit_wait_results(fleet: Fleet):
    verdict = '{"score": 0.5, "success": false, "steps": 3, "metrics": {"m": 1}}'
    run = evalfleet.submit(
        [
            evalfleet.Task(key="a_1", command=["sh", "-c", f"echo '{verdict}' > $EVALFLEET_RESULT"], timeout="1m"),
            evalfleet.Task(key="a_2", command=("sh", "-c", "exit 3"), domain="own", timeout=timedelta(minutes=1)),
            sh("plain", payload={"x": [1, 2]}, env={"A": "1"}, requests={"memory_mb": 1}),
        ],
        name="three",
        workers=2,
        attempts=1,
    )
    assert (run.name, run.state) == ("three", "queued")
    assert repr(run) == f"<evalfleet run {run.id} (three) in {fleet.home}>"
    summary = run.wait()
    assert (summary.run, summary.state, run.state) == (run.id, "completed", "completed")
    assert summary == run.summary()
    assert plain(summary) == fleet.json("report", run.id)

    results = by_key(run)
    assert list(results) == ["a_1", "a_2", "plain"]
    first, second = results["a_1"], results["a_2"]
    assert (first.domain, first.state, first.score, first.success, first.steps) == ("a", "done", 0.5, False, 3)
    assert (first.metrics, first.failure, first.attempts) == ({"m": 1}, None, 1)
    assert first.worker in ("local-1", "local-2")
    assert first.duration_s is not None
    assert (second.domain, second.state, second.score, second.metrics) == ("own", "failed", None, {})
    assert second.failure is not None
    assert (second.failure.kind, second.failure.blame, second.failure.evidence) == ("bad_exit", "task", "exit status 3")
    assert "1 of 1 attempts used" in (second.reason or "")

    events = list(run.events())
    assert [event.number for event in events] == sorted(event.number for event in events)
    assert events[0].type == "run.submitted"
    assert list(run.events(after=events[-2].number)) == events[-1:]
    assert (fleet.home / "runs" / run.id / "parallel_live.json").exists()
    assert fleet.left_processes() == []


def test_a_task_file_and_what_goes_before_it(fleet: Fleet):
    path = fleet.tasks([sh("a")], name="nightly.jsonl", attempts=2, timeout="1m", result="required", workers=3)
    plain = evalfleet.submit(path)
    changed = evalfleet.submit(Path(path), name="mine", workers=1, timeout=timedelta(seconds=5), result="optional")
    reader = open_reader(fleet.home)
    assert reader is not None
    first, second = reader.runs.get(plain.id), reader.runs.get(changed.id)
    reader.close()
    assert (first.name, second.name) == ("nightly", "mine")
    policies = [(p.attempts, p.timeout_s, p.result_required, p.workers) for p in (first.policy, second.policy)]
    assert policies == [(2, 60.0, True, 3), (2, 5.0, False, 1)]
    assert first.folder == str(fleet.folder)


def test_tasks_start_in_the_folder_that_is_named(fleet: Fleet, tmp_path: Path):
    run = evalfleet.submit(iter([sh("a", "pwd > here")]), folder=tmp_path)
    run.wait()
    assert (tmp_path / "here").read_text().strip() == str(tmp_path)


@pytest.mark.parametrize(
    ("tasks", "settings", "part"),
    [
        ([sh("a"), sh("a")], {}, 'task "a": the key is used twice'),
        ([{"key": "a", "comand": ["x"]}], {}, 'unknown key "comand"'),
        ([evalfleet.Task(key="", command=["x"])], {}, "key: is empty"),
        ([evalfleet.Task(key="a", command=[])], {}, "command: is empty"),
        ([evalfleet.Task(key="a", command=["x"], timeout="-1s")], {}, "negative"),
        (["a"], {}, "expected one task"),
        ([], {}, "there are no tasks"),
        (sh("a"), {}, "put the one into a list"),
        (evalfleet.Task(key="a", command=["x"]), {}, "put the one into a list"),
        ([sh("a")], {"workers": 0}, "workers: 0 is out of range"),
        ([sh("a")], {"atempts": 1}, "did you mean"),
        ([sh("a")], {"accept": 2}, "accept: 2 is out of range"),
        ([sh("a", secrets=["NO_SUCH_SECRET"])], {}, "NO_SUCH_SECRET"),
        ("no_such_file.toml", {}, "there is no such file"),
    ],
)
def test_bad_input_stores_nothing(fleet: Fleet, tasks: Any, settings: dict[str, Any], part: str):
    with pytest.raises(errors.InputError) as error:
        evalfleet.submit(tasks, **settings)
    assert part in str(error.value)
    assert not fleet.home.exists()
    with pytest.raises(errors.NotFound):
        evalfleet.open_run()


def test_bad_settings_for_a_file_are_refused_as_well(fleet: Fleet):
    with pytest.raises(errors.InputError, match=r"submit: timeout: .* is not a duration"):
        evalfleet.submit(fleet.tasks([sh("a")]), timeout="soon")


def test_the_settings_are_those_of_the_task_file():
    assert set(api.RunSettings.__annotations__) | {"name", "workers"} == row.RUN_KEYS


def test_open_run(fleet: Fleet):
    first = evalfleet.submit([sh("a")], name="first")
    second = evalfleet.submit([sh("a")], name="second")
    assert evalfleet.open_run().id == second.id
    assert evalfleet.open_run(first.id[:6]).id == first.id
    assert evalfleet.open_run("first", home=fleet.home).name == "first"
    with pytest.raises(errors.NotFound):
        evalfleet.open_run("nonsense")


# Waiting


def test_a_time_out_leaves_the_tasks_running(fleet: Fleet):
    run = evalfleet.submit([gated()])
    drive_until(run, fleet.lines)
    with pytest.raises(TimeoutError, match=f"run {run.id} has not settled"):
        run.wait(timeout=0.1)
    assert run.state == "running"
    open_gate(fleet)
    assert run.wait().tasks.done == 1
    assert fleet.lines() == ["a"]


def test_ctrl_c_leaves_the_tasks_running(fleet: Fleet):
    script = "import evalfleet, sys; evalfleet.open_run(sys.argv[1]).wait()"
    run = evalfleet.submit([gated("a"), gated("b")], workers=1)
    process = subprocess.Popen([sys.executable, "-c", script, run.id], stderr=subprocess.PIPE, text=True)
    try:
        wait_for(fleet.lines, "the task")
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == -signal.SIGINT
    assert said.rstrip().endswith("KeyboardInterrupt")
    assert fleet.left_processes() != []
    open_gate(fleet)
    assert run.wait().tasks.done == 2
    assert fleet.lines() == ["a", "b"]


def test_no_signal_handler_stays(fleet: Fleet):
    before = {number: signal.getsignal(number) for number in signal.Signals}
    evalfleet.submit([sh("a")]).wait()
    assert {number: signal.getsignal(number) for number in signal.Signals} == before


def test_a_run_that_another_process_drives_is_followed(fleet: Fleet):
    process = fleet.start("run", fleet.tasks([gated()]))
    wait_for(fleet.lines, "the task")
    run = evalfleet.open_run()
    answers: list[Any] = []
    waiting = threading.Thread(target=lambda: answers.append(run.wait()))
    waiting.start()
    with pytest.raises(TimeoutError):
        run.wait(timeout=0.3)
    open_gate(fleet)
    waiting.join(60)
    assert [answer.state for answer in answers] == ["completed"]
    assert process.wait(60) == 0
    taken = [event for event in run.events() if event.type == "run.taken"]
    assert len(taken) == 1


def test_a_driver_that_dies_is_replaced(fleet: Fleet):
    process = fleet.start("run", fleet.tasks([gated("a"), gated("b")]), "--workers", "1")
    wait_for(fleet.lines, "the task")
    run = evalfleet.open_run()
    answers: list[Any] = []
    waiting = threading.Thread(target=lambda: answers.append(run.wait()))
    waiting.start()
    process.kill()
    wait_for(lambda: len([e for e in run.events() if e.type == "run.taken"]) == 2, "the take-over")
    open_gate(fleet)
    waiting.join(60)
    assert [answer.tasks.done for answer in answers] == [2]
    assert fleet.lines() == ["a", "b"]


def test_a_finished_run_returns_at_once(fleet: Fleet):
    run = evalfleet.submit([sh("a")])
    assert run.wait() == run.wait(timeout=30)


def test_a_run_that_ends_while_we_reach_for_it_stays_as_it_is(fleet: Fleet):
    run = evalfleet.submit([sh("a"), sh("b", "exit 1")], attempts=1)
    run.wait()
    store = open_store(fleet.home)
    try:
        assert run._take(store) is None  # pyright: ignore[reportPrivateUsage]
        with pytest.raises(errors.WrongState, match="completed already"):
            ask_or_do(store, store.runs.get(run.id), Verb.CANCEL, {})
    finally:
        store.close()
    assert run.state == "completed"


def test_an_owner_that_leaves_without_an_answer_is_replaced(fleet: Fleet):
    run = evalfleet.submit([sh("a"), sh("b", "exit 1")], attempts=1)
    run.wait()
    owner, asker = open_store(fleet.home), open_store(fleet.home)
    try:
        owned = owner.runs.take(run.id, "one who does not listen")
        retried: list[list[str]] = []
        asking = threading.Thread(target=lambda: retried.append(run.retry()))
        asking.start()
        wait_for(lambda: asker.requests.pending(run.id), "the request")
        owner.runs.leave(owned)
        asking.join(60)
        assert retried == [["b"]]
        assert asker.requests.pending(run.id) == []
    finally:
        owner.close()
        asker.close()
    assert run.state == "running"
    run.cancel()


def test_a_paused_run_is_returned_and_resumed_by_the_next_wait(fleet: Fleet, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TOKEN_OF_TEST", "something")
    run = evalfleet.submit([sh("a", secrets=["TOKEN_OF_TEST"])])
    monkeypatch.delenv("TOKEN_OF_TEST")
    assert run.wait().state == "paused"
    monkeypatch.setenv("TOKEN_OF_TEST", "something")
    assert run.wait().state == "completed"


# Event loops


def test_the_synchronous_calls_refuse_an_event_loop(fleet: Fleet):
    run = evalfleet.submit([sh("a")])

    async def inside() -> None:
        with pytest.raises(errors.Refused, match=r"await run\.wait_async"):
            run.wait()
        with pytest.raises(errors.Refused, match=r"await run\.cancel_async"):
            run.cancel()
        assert (await run.wait_async()).state == "completed"
        await run.cancel_async()

    anyio.run(inside)


def test_two_runs_in_one_loop_and_a_wait_that_is_cancelled(fleet: Fleet):
    runs = [evalfleet.submit([gated(name)], name=name) for name in ("left", "right")]

    async def both() -> list[Any]:
        answers: list[Any] = []

        async def wait(run: evalfleet.RunHandle) -> None:
            answers.append(await run.wait_async())

        async with anyio.create_task_group() as group:
            for run in runs:
                group.start_soon(wait, run)
            await anyio.to_thread.run_sync(wait_for, lambda: len(fleet.lines()) == 2, "the tasks")
            group.cancel_scope.cancel()
        assert answers == []
        open_gate(fleet)
        async with anyio.create_task_group() as group:
            for run in runs:
                group.start_soon(wait, run)
        return answers

    assert {answer.state for answer in anyio.run(both)} == {"completed"}
    assert sorted(fleet.lines()) == ["left", "right"]


# Examples


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        (
            "python_api.py",
            {"guess_4: score 1.0, {'guess': 4}", "broken_1: bad_exit, blamed on the task: exit status 1: no luck"},
        ),
        ("async_api.py", {"left: completed, 4 of 4 passed", "right: completed, 4 of 4 passed"}),
    ],
)
def test_examples(fleet: Fleet, name: str, lines: set[str]):
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / name), str(fleet.home)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={"PATH": os.environ["PATH"]},
    )
    assert done.returncode == 0, done.stderr
    assert lines <= set(done.stdout.splitlines())


def test_the_page_of_the_reference_runs(fleet: Fleet):
    """Every Python block of docs/reference/python.md, one after another in one script."""
    page = (ROOT / "docs" / "reference" / "python.md").read_text()
    (fleet.folder / "agent.py").write_text("print('hello')\n")
    (fleet.folder / "tasks.toml").write_text('[[task]]\nkey = "a"\ncommand = ["true"]\n')
    blocks = [part.split("```")[0] for part in page.split("```python\n")[1:]]
    assert len(blocks) >= 4
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(blocks)], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr


TRIAL = """
import json, os
threads = json.load(open(os.environ["EVALFLEET_TASK"]))["payload"]["parameters"]["threads"]
json.dump({"success": True, "metrics": {"seconds": threads}}, open(os.environ["EVALFLEET_RESULT"], "w"))
"""
STUDY = {
    "study": {"name": "flags", "objective": {"minimize": "seconds"}, "trials": 2, "strategy": "grid"},
    "parameters": {"threads": [1, 2]},
    "trial": {"command": ["python3", "trial.py"]},
}


def test_a_study(fleet: Fleet):
    (fleet.folder / "trial.py").write_text(TRIAL)
    assert evalfleet.list_studies() == []
    study = evalfleet.submit_study(STUDY, parallel=2)
    assert study.best() is None
    study.wait()
    assert study.best() == {"threads": 1}
    assert [trial.progress for trial in study.trials()] == ["measured"] * len(study.trials())
    assert evalfleet.open_study("flags").id == evalfleet.open_study().id == study.id
    assert plain(study.facts()).items() <= fleet.json("study", "show").items()
    assert [row.run for row in evalfleet.list_studies()] == [study.id]
    assert study.retry_failed() == []
    with pytest.raises(errors.InputError):
        evalfleet.submit_study({**STUDY, "trial": {}})
    with pytest.raises(errors.NotFound):
        evalfleet.submit_study(STUDY, pool="nowhere")
    with pytest.raises(errors.InputError):
        study.add_trials(0)
