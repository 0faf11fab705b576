"""The live state, and the file that tools watch."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.support.report_builders import RunBuilder, mixed_run

from evalfleet.core.breaker import Breaker
from evalfleet.model import Blame, BreakerState, Kind, Policy, TaskState, WorkerState
from evalfleet.report.live import live_state, natural, parallel_live, workers, write_live


@pytest.fixture
def mixed(home: Path):
    builder = mixed_run(home)
    yield builder
    builder.close()


def test_workers_keep_their_place_whether_busy_or_not(mixed: RunBuilder) -> None:
    claimed = mixed.claim("web_2", "local-1")
    mixed.step(claimed, 3)
    mixed.time += 42
    live = live_state(mixed.store, mixed.run)
    busy, idle = live.workers
    assert (busy.name, busy.state, busy.key, busy.attempt, busy.step) == ("local-1", WorkerState.BUSY, "web_2", 1, 3)
    assert busy.elapsed_s == pytest.approx(42)
    assert not busy.starting
    assert (idle.name, idle.state, idle.key) == ("local-2", WorkerState.READY, None)
    assert workers(mixed.store, mixed.run) == live.workers


def test_slots_that_nothing_ran_on_yet_are_shown(home: Path) -> None:
    builder = RunBuilder(home, ["a_1"], policy=Policy(workers=3)).begin()
    builder.claim("a_1", "local-1")
    live = live_state(builder.store, builder.run)
    builder.close()
    assert [(one.name, one.starting) for one in live.workers] == [("local-1", True), ("", False), ("", False)]


def test_totals_scores_failures_and_cost(mixed: RunBuilder) -> None:
    live = live_state(mixed.store, mixed.run)
    assert (live.total, live.settled, live.retried, live.failed_attempts) == (6, 5, 1, 3)
    assert live.scores.valid == pytest.approx(0.5)
    assert [(one.key, one.kind, one.blame) for one in live.failures] == [
        ("web_1", Kind.PREEMPTED, Blame.POOL),
        ("sheet_2", Kind.TIMEOUT, Blame.TASK),
        ("sheet_1", Kind.RUNNER_LOST, Blame.WORKER),
    ]
    assert live.cost_usd == pytest.approx(0.6)
    assert live.eta is not None
    assert 0 < live.eta.low <= live.eta.high


def test_an_open_breaker_says_why(mixed: RunBuilder) -> None:
    assert live_state(mixed.store, mixed.run).breaker is None
    mixed.store.runs.store_breaker(mixed.run, Breaker(state=BreakerState.OPEN).to_json(), "breaker.opened")
    assert live_state(mixed.store, mixed.run).breaker == "open"


def test_parallel_live_has_exactly_its_keys_and_follows_success(mixed: RunBuilder) -> None:
    mixed.claim("web_2", "local-1")
    live = parallel_live(live_state(mixed.store, mixed.run))
    assert live == {
        "status": "running",
        "run": mixed.run.id,
        "pool_id": datetime.fromtimestamp(mixed.run.created_at, UTC).strftime("%Y%m%d_%H%M%S"),
        "started_at": datetime.fromtimestamp(mixed.run.started_at or 0, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "total_tasks": 6,
        "completed_tasks": 3,
        "failed_tasks": 1,
        "errors": 2,
        "workers": [
            {"name": "local-1", "status": "running", "assigned": 5, "completed": 1, "current_task": "web_2"},
            {"name": "local-2", "status": "ready", "assigned": 2, "completed": 2, "current_task": None},
        ],
    }


def test_write_live_replaces_the_file_and_leaves_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "runs" / "x" / "parallel_live.json"
    write_live(path, {"status": "lost"})
    assert list(tmp_path.iterdir()) == [], "the home was moved: nothing appears where it was"
    path.parent.mkdir(parents=True)
    write_live(path, {"status": "running"})
    write_live(path, {"status": "completed"})
    assert json.loads(path.read_text()) == {"status": "completed"}
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_natural_order() -> None:
    assert sorted(["local-10", "local-2", "gpu-1", "local-1", "7"], key=natural) == [
        "gpu-1",
        "local-1",
        "local-2",
        "local-10",
        "7",
    ]


def test_finished_runs_have_no_eta(home: Path) -> None:
    builder = RunBuilder(home, ["a_1"]).begin()
    builder.attempt("a_1", 1.0)
    builder.complete()
    live = live_state(builder.store, builder.run)
    builder.close()
    assert live.eta is None
    assert live.counts[TaskState.DONE] == 1
