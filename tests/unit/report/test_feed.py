"""Events as lines."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from tests.support.report_builders import RunBuilder, mixed_run

from evalfleet.cli.shared.view import PlainLines
from evalfleet.model import Kind, TaskState
from evalfleet.report.terminal import events


@pytest.fixture
def mixed(home: Path):
    builder = mixed_run(home)
    yield builder
    builder.close()


def printed(builder: RunBuilder, **how) -> list[str]:
    stream = io.StringIO()
    PlainLines(builder.run, stream, **how).update(builder.store)
    return [line[9:] for line in stream.getvalue().splitlines()]


def test_one_line_per_event_worth_one(mixed: RunBuilder) -> None:
    mixed.pause()
    assert printed(mixed) == [
        "run started",
        "[1/6] passed         pad_1  score 1, 10s on local-1",
        "[2/6] not passed     pad_2  score 0, 10s on local-2",
        "[2/6] retried        sheet_1  runner_lost, blamed on worker: the runner died",
        "[3/6] passed         sheet_1  score 1, 10s on local-2",
        "[4/6] failed         sheet_2  timeout, blamed on task: no end after 15m",
        "[5/6] held           web_1  preempted, blamed on pool: evicted",
        "run paused     budget: the budget is spent",
    ]


def test_verbose_adds_claims_and_progress(home: Path) -> None:
    builder = RunBuilder(home, ["a_1"]).begin()
    claimed = builder.claim("a_1")
    builder.step(claimed, 3, [{"step": 3, "note": "clicked\x1b[2J"}])
    shown = printed(builder, verbose=True)
    builder.close()
    assert "[0/1] claimed        a_1  attempt 1 on local-1" in shown
    assert "[0/1] progressed     a_1  step 3 clicked\\e[2J" in shown


def test_only_what_is_new_is_printed(mixed: RunBuilder) -> None:
    stream = io.StringIO()
    plain = PlainLines(mixed.run, stream)
    last = plain.update(mixed.store)
    before = len(stream.getvalue())
    assert plain.update(mixed.store) == last
    assert len(stream.getvalue()) == before
    mixed.attempt("web_2", 1.0)
    plain.update(mixed.store)
    assert "[6/6] passed         web_2" in stream.getvalue()[before:]


def test_joining_late_counts_right(mixed: RunBuilder) -> None:
    last = mixed.store.events.last(mixed.run.id)
    assert last is not None
    mixed.attempt("web_2", 1.0)
    assert printed(mixed, after=last.number) == ["[6/6] passed         web_2  score 1, 10s on local-1"]


def test_many_pages_count_right(home: Path) -> None:
    builder = RunBuilder(home, [f"a_{i}" for i in range(400)]).begin()
    with builder.store.batch():
        for key in builder.numbers:
            builder.attempt(key, 1.0)
    shown = printed(builder)
    builder.close()
    assert shown[1].startswith("[  1/400]")
    assert shown[-1].startswith("[400/400]")
    assert len(shown) == 401


def test_hostile_text_is_shown_not_obeyed(home: Path) -> None:
    builder = RunBuilder(home, ["a\x1b[31m\n_1"]).begin()
    builder.attempt("a\x1b[31m\n_1", kind=Kind.BAD_EXIT, evidence="\x1b]0;title\x07[bold]\nx", then=TaskState.FAILED)
    shown = printed(builder)
    builder.close()
    assert shown[1] == "[1/1] failed         a\\e[31m\\n_1  bad_exit, blamed on task: \\e]0;title\\x07[bold]\\nx"


def test_settled_by() -> None:
    def event(type: str, attempt: str | None = None):
        return events.Event(number=1, run_id="r", at=0, type=type, task="a", attempt=attempt, data={})

    assert events.settled_by(event("task.done", "r.1.1")) == 1
    assert events.settled_by(event("task.retried", "r.1.1")) == 0
    assert events.settled_by(event("task.retried")) == -1
    assert events.settled_by(event("attempt.claimed", "r.1.1")) == 0
