"""`evalfleet judge`: a finished run judged again, from its end records alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.fleet import Fleet, wait_for
from tests.support.store import cases

from evalfleet.core.failures.judge import Pattern
from evalfleet.errors import Owned, WrongState
from evalfleet.model import Blame, Failure, Kind, Outcome, Policy, Run, TaskState
from evalfleet.operations.runs.rejudge import Change, rejudge, review
from evalfleet.store.open import open_store
from evalfleet.store.store import Store

PATTERN = """\
[[judge.pattern]]
regex = "no route to the license server"
kind = "backend_error"
"""


def sh(key: str, script: str) -> dict[str, Any]:
    return {"key": key, "command": ["sh", "-c", script]}


@pytest.fixture
def judged(fleet: Fleet) -> Fleet:
    """A finished run: a verdict, a failure of its own, and one whose cause nobody knew then."""
    tasks = [
        sh("good", "exit 0"),
        sh("bad", "echo broken >&2; exit 1"),
        sh("licence", "echo no route to the license server >&2; exit 1"),
    ]
    summary = fleet.json("run", fleet.tasks(tasks, attempts=1))
    assert summary["tasks"]["failed"] == 2
    return fleet


def with_pattern(fleet: Fleet) -> Fleet:
    (fleet.home / "config.toml").write_text(PATTERN)
    return fleet


def test_a_new_pattern_moves_the_blame_and_the_task(judged: Fleet):
    fleet = with_pattern(judged)
    answer = fleet.json("judge")
    (change,) = answer["changes"]
    assert (change["key"], change["attempt"], change["applied"]) == ("licence", 1, True)
    assert (change["from"]["kind"], change["from"]["blame"]) == ("bad_exit", "task")
    assert (change["to"]["kind"], change["to"]["blame"]) == ("backend_error", "backend")
    assert change["to"]["outcome"] == "infra_error"
    assert change["task"] == {"from": "failed", "to": "held"}
    assert answer["tasks"] == {
        "total": 3, "queued": 0, "running": 0, "done": 1, "failed": 1, "held": 1, "cancelled": 0
    }  # fmt: skip
    report = fleet.json("report")
    assert report["scores"]["coverage"] == pytest.approx(2 / 3)
    assert report["failures"] == {"bad_exit": 1, "backend_error": 1}
    assert [event["type"] for event in fleet.events()][-4:] == ["run.taken", "attempt.judged", "task.held", "run.left"]


def test_judging_again_changes_nothing_and_without_the_pattern_all_is_as_before(judged: Fleet):
    before = judged.json("report")
    fleet = with_pattern(judged)
    fleet.json("judge")
    assert fleet.json("judge")["changes"] == []
    (fleet.home / "config.toml").unlink()
    assert fleet.json("judge")["changes"][0]["task"] == {"from": "held", "to": "failed"}
    after = fleet.json("report")
    for row in (*after["results"], *before["results"]):
        row.pop("reason", None)  # the words tell how often a task was tried, or how it was judged
    assert after == before


def test_a_dry_run_says_the_same_and_changes_nothing(judged: Fleet):
    fleet = with_pattern(judged)
    before = fleet.events()
    dry = fleet.json("judge", "--dry-run")
    assert fleet.events() == before
    real = fleet.json("judge")
    assert dry["tasks"] == real["tasks"]
    assert [{**change, "applied": True} for change in dry["changes"]] == real["changes"]


def test_words_for_people(judged: Fleet):
    done = with_pattern(judged).command("judge", "latest")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].endswith("1 judgement changed")
    assert lines[2].split("  ")[0] == "licence"
    assert "bad_exit, task (task_error)" in lines[2]
    assert lines[2].endswith("failed → held")
    assert lines[-1] == "tasks: 1 with a verdict, 1 failed, 1 held"


def test_a_driven_run_is_refused(fleet: Fleet):
    go = fleet.folder / "go"
    process = fleet.start("run", fleet.tasks([sh("a", f"echo up >> ledger; while [ ! -e {go} ]; do sleep 0.02; done")]))
    wait_for(fleet.lines, "the task")
    for dry in ([], ["--dry-run"]):
        done = fleet.command("judge", "latest", *dry)
        assert done.returncode == 3, done.stdout
        assert "running" in done.stderr or "driven" in done.stderr
    go.touch()
    assert process.wait(60) == 0
    assert fleet.json("judge")["changes"] == []


def test_no_run_is_an_input_error(fleet: Fleet):
    assert fleet.command("judge").returncode == 2
    assert not fleet.home.exists()


# The replay, on runs whose history a test writes itself


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = open_store(tmp_path / "home")
    yield store
    store.close()


LOST = {"cause": "launch_failed", "message": "No such file or directory: agent"}


def ended(store: Store, run: Run, number: int, end: dict[str, Any], failure: Failure | None = None, **fields: Any):
    """An attempt that ended so, as some older judge saw it."""
    attempt = cases.claimed(store, run, number).attempt
    found = failure or cases.new_failure(Kind.LAUNCH_FAILED, evidence="No such file or directory: agent")
    state = fields.pop("next_state", TaskState.FAILED)
    finish = cases.with_failure(attempt, state, failure=found, end=end, ended_at=1000.0 + number, **fields)
    store.attempts.collect(run, cases.finished(store, run, finish).attempt, [])


def closed(store: Store, run: Run) -> Run:
    done = store.runs.complete(run)
    assert done is not None
    store.runs.leave(run)
    return store.runs.get(run.id)


def shown(changes: list[Change]) -> list[tuple[str, Any]]:
    return [(one.key, one.judged.blame if isinstance(one.judged, Failure) else one.judged.score) for one in changes]


def test_blame_is_replayed_in_the_order_in_which_it_was_judged(store: Store):
    """Hosts' clocks may say that they ended in another one."""
    run = cases.drive(store, 5)
    for number in (4, 2, 5, 1, 3):
        ended(store, run, number, LOST)
    done = closed(store, run)
    changes = rejudge(store, done, ())
    # The first two could have been the tasks' own; from the third on it is the pool.
    assert shown(changes) == [(f"task_{number}", Blame.POOL) for number in (5, 1, 3)]
    assert {one.moves for one in changes} == {(TaskState.FAILED, TaskState.HELD)}
    assert store.tasks.counts(run.id)[TaskState.HELD] == 3
    assert store.attempts.all(run.id, 3)[0].outcome is Outcome.INFRA_ERROR
    assert rejudge(store, done, ()) == []
    assert store.runs.driver(run.id) is None


def test_an_attempt_that_would_have_a_verdict_is_reported_only(store: Store):
    run = cases.drive(store, 1)
    ended(store, run, 1, {"cause": "exited", "exit_code": 0})
    done = closed(store, run)
    before = store.attempts.all(run.id)
    assert shown(rejudge(store, done, ())) == [("task_1", 1.0)]
    assert store.attempts.all(run.id) == before
    assert store.tasks.at(run.id, 1).state is TaskState.FAILED


def test_cancelled_attempts_and_unknown_ends_are_judged_as_well(store: Store):
    run = cases.drive(store, 3, Policy(exit_is_verdict=True))
    cancelled = Failure(kind=Kind.CANCELLED, blame=Blame.RUN, retryable=False, consumes=False, evidence="cancelled")
    ended(store, run, 1, {"cause": "cancelled"}, cancelled, next_state=TaskState.CANCELLED, outcome=Outcome.CANCELLED)
    ended(store, run, 2, {"cause": "from the future"})
    ended(store, run, 3, {})
    changes = rejudge(store, closed(store, run), ())
    assert shown(changes) == [("task_2", Blame.BACKEND), ("task_3", Blame.BACKEND)]
    assert store.tasks.at(run.id, 1).state is TaskState.CANCELLED


def test_a_waiting_task_of_a_paused_run_stays_queued(store: Store):
    run = cases.drive(store, 1)
    ended(store, run, 1, {"cause": "stall", "idle_s": 9}, next_state=TaskState.QUEUED)
    store.runs.pause(run, {"cause": "budget", "message": "spent"})
    store.runs.leave(run)
    (change,) = rejudge(store, store.runs.get(run.id), ())
    assert (change.outcome, change.moves) == (Outcome.STALLED, None)
    assert store.tasks.at(run.id, 1).state is TaskState.QUEUED
    assert store.runs.get(run.id).state == "paused"


def test_a_task_that_a_person_holds_stays_held(store: Store):
    run = cases.drive(store, 1)
    ended(store, run, 1, LOST, next_state=TaskState.HELD, reason="held on request")
    done = closed(store, run)
    rejudge(store, done, [Pattern.of("No such file", "task_error")])
    assert store.tasks.at(run.id, 1).state is TaskState.HELD
    assert store.attempts.all(run.id)[0].failure == cases.new_failure(Kind.TASK_ERROR, evidence=LOST["message"])


def test_what_is_not_finished_or_not_ours_is_refused(store: Store, tmp_path: Path):
    queued = cases.submit(store)
    running = cases.drive(store)
    for run in (queued, running):
        for judge in (rejudge, review):
            with pytest.raises(WrongState, match=f"resume {run.id}"):
                judge(store, run, ())
    run = cases.drive(store, 1)
    ended(store, run, 1, LOST)
    done = closed(store, run)
    other = open_store(tmp_path / "home")
    other.runs.take(run.id, "another")
    try:
        for judge in (rejudge, review):
            with pytest.raises(Owned):
                judge(store, done, [Pattern.of("No such file", "task_error")])
    finally:
        other.close()


def test_the_answer_is_json_whatever_the_evidence_says(judged: Fleet):
    fleet = with_pattern(judged)
    (fleet.home / "config.toml").write_text('[[judge.pattern]]\nregex = "."\nkind = "disk_full"\n')
    text = fleet.command("judge", "--json").stdout
    assert {change["to"]["kind"] for change in json.loads(text)["changes"]} == {"disk_full"}
