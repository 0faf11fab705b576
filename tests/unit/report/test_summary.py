"""The summary object and its exit codes."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import json, to_builtins
from msgspec.structs import replace
from tests.support.report_builders import RunBuilder, mixed_run

from evalfleet.answers.summary import Summary
from evalfleet.answers.task_result import TaskResult
from evalfleet.model import Blame, Kind, Policy, RunState, TaskState
from evalfleet.report.summary import accepted, exit_code, summarise
from evalfleet.report.terminal.lines import paint
from evalfleet.report.terminal.summary import next_command, overview

PROMISED = {
    "run", "name", "state", "tasks", "scores", "attempts", "failures", "failures_by_blame", "cost", "retry_rate", "retry_bias",
    "avg_task_duration_s", "duration_s", "by_domain", "results", "accept", "accepted",
}  # fmt: skip


@pytest.fixture
def mixed(home: Path):
    builder = mixed_run(home)
    yield builder
    builder.close()


def results_of(builder: RunBuilder) -> list[TaskResult]:
    return summarise(builder.store, builder.run).results or []


def test_has_every_promised_key_and_is_json(mixed: RunBuilder) -> None:
    summary = summarise(mixed.store, mixed.run)
    assert set(to_builtins(summary)) >= PROMISED
    assert json.decode(json.encode(summary), type=Summary) == summary
    assert set(to_builtins(results_of(mixed)[0])) == {
        "number", "key", "domain", "state", "score", "success", "steps", "metrics", "duration_s", "attempts", "worker", "failure", "reason",
    }  # fmt: skip


def test_counts_scores_and_coverage(mixed: RunBuilder) -> None:
    summary = summarise(mixed.store, mixed.run)
    assert to_builtins(summary.tasks) == {
        "total": 6, "done": 3, "failed": 1, "held": 1, "cancelled": 0, "queued": 1, "running": 0,
    }  # fmt: skip
    scores = summary.scores
    assert scores.strict == pytest.approx(2 / 6)
    assert scores.valid == pytest.approx(2 / 4)
    assert scores.coverage == pytest.approx(4 / 6)
    assert scores.verdicts == 3
    for interval, score in ((scores.ci95.strict, scores.strict), (scores.ci95.valid, scores.valid)):
        low, high = interval or (1.0, 0.0)
        assert 0 <= low < (score or 0.0) < high <= 1


def test_attempts_failures_and_money(mixed: RunBuilder) -> None:
    summary = summarise(mixed.store, mixed.run)
    assert summary.attempts.total == 6
    assert summary.attempts.by_outcome["ok"] == 3
    assert summary.failures == {"preempted": 1, "runner_lost": 1, "timeout": 1}
    assert summary.failures_by_blame == {"pool": 1, "worker": 1, "task": 1}
    assert summary.cost.total_usd == pytest.approx(0.60)
    assert summary.cost.waste_usd == pytest.approx(0.30)
    assert summary.cost.cost_per_task_usd == pytest.approx(0.12)
    assert summary.cost.estimated_total_usd == pytest.approx(0.72)
    assert summary.retry_rate == pytest.approx(1 / 5)
    assert to_builtins(summary.retry_bias) == {
        "first_attempt": {"n": 2, "score": 0.5},
        "retried": {"n": 1, "score": 1.0},
    }


def test_results_are_in_the_order_of_submission(mixed: RunBuilder) -> None:
    results = results_of(mixed)
    assert [result.key for result in results] == ["pad_1", "pad_2", "sheet_1", "sheet_2", "web_1", "web_2"]
    assert results[2].attempts == 2
    assert results[2].worker == "local-2"
    assert results[2].failure is None, "a task with a verdict has no failure, whatever happened before"
    assert to_builtins(results[3].failure) == {"kind": "timeout", "blame": "task", "evidence": "no end after 15m"}
    assert to_builtins(results[5]) == {
        "number": 6, "key": "web_2", "domain": "web", "state": "queued", "score": None, "success": None, "steps": None,
        "duration_s": None, "attempts": 0, "worker": None, "failure": None, "reason": None, "metrics": None,
    }  # fmt: skip


def test_domains_add_up(mixed: RunBuilder) -> None:
    summary = summarise(mixed.store, mixed.run)
    for name, count in to_builtins(summary.tasks).items():
        assert sum(getattr(domain, name) for domain in summary.by_domain.values()) == count
    assert summary.by_domain["sheet"].score_valid == 0.5
    assert summary.by_domain["web"].score_valid is None


def test_without_results_nothing_else_changes(mixed: RunBuilder) -> None:
    whole = summarise(mixed.store, mixed.run)
    assert summarise(mixed.store, mixed.run, results=False) == replace(whole, results=None)


def test_an_untouched_run_has_a_summary(home: Path) -> None:
    builder = RunBuilder(home, ["a_1"])
    summary = summarise(builder.store, builder.run)
    builder.close()
    assert summary.state == "queued"
    assert summary.scores.valid is None
    assert summary.scores.strict == 0.0
    assert summary.duration_s is None
    assert summary.retry_rate is None
    assert summary.reason is None


def test_a_pause_does_not_lengthen_the_run(mixed: RunBuilder) -> None:
    mixed.pause().leave()
    before = summarise(mixed.store, mixed.run)
    mixed.time += 86_400
    assert summarise(mixed.store, mixed.run).duration_s == before.duration_s == 60.0
    assert before.reason is not None
    assert before.reason.cause == "budget"


def test_pages_are_complete(home: Path) -> None:
    keys = [f"a_{i}" for i in range(1203)]
    builder = RunBuilder(home, keys)
    assert [result.key for result in results_of(builder)] == keys
    builder.close()


@pytest.mark.parametrize(
    ("state", "enough", "code"),
    [
        ("completed", True, 0),
        ("completed", False, 1),
        ("cancelled", True, 1),
        ("paused", True, 3),
        ("paused", False, 3),
        ("running", True, 1),
        ("queued", False, 1),
    ],
)
def test_exit_codes(mixed: RunBuilder, state: str, enough: bool, code: int) -> None:
    summary = summarise(mixed.store, mixed.run, results=False)
    assert exit_code(replace(summary, state=RunState(state), accepted=enough)) == code


def test_accept_is_not_missed_by_a_rounding_error() -> None:
    assert accepted(19 / 20, 0.95)
    assert accepted(0.1 + 0.2, 0.3)
    assert accepted(57 / 60, 0.95)
    assert not accepted(0.9499, 0.95)


def test_coverage_counts_own_failures_but_not_held(home: Path) -> None:
    builder = RunBuilder(home, ["a_1", "a_2"], policy=Policy(accept=0.5)).begin()
    builder.attempt("a_1", kind=Kind.BAD_EXIT, then=TaskState.FAILED)
    builder.attempt("a_2", kind=Kind.RUNNER_LOST, blame=Blame.WORKER, then=TaskState.HELD)
    builder.complete()
    summary = summarise(builder.store, builder.run)
    builder.close()
    assert summary.scores.coverage == 0.5
    assert summary.scores.valid == 0.0, "crashing on hard tasks pays nothing"
    assert exit_code(summary) == 0


def test_overview_says_it_in_words(mixed: RunBuilder) -> None:
    shown = paint(overview(summarise(mixed.store, mixed.run, results=False), 120), colour=False)
    assert "3 of 6 tasks got a verdict (2 passed, 1 not passed), 1 failed, 1 held, 1\n" in shown
    assert "Valid score   50.0%   95% CI 15.0–85.0%" in shown
    assert "4 of 6 tasks count; wanted 100%: not reached" in shown
    waste = "$0.30 on attempts without a verdict that counts (failed $0.20, lost $0.05, preempted $0.05)"
    assert waste in shown
    assert "timeout" in shown
    assert "sheet_2: no end after 15m" in shown


@pytest.mark.parametrize("width", [60, 80, 140])
def test_overview_fits(mixed: RunBuilder, width: int) -> None:
    mixed.pause(message="a long reason " * 20)
    summary = summarise(mixed.store, mixed.run)
    shown = paint(overview(summary, width), colour=False).splitlines()
    assert all(len(line) <= width for line in shown[:-1]), "only the command to copy may be longer"


def test_next_command_fits_the_state(mixed: RunBuilder) -> None:
    summary = summarise(mixed.store, mixed.run)
    run = summary.run
    assert next_command(summary)[0] == f"evalfleet watch {run}"
    assert next_command(summary, driven=False)[0] == f"evalfleet resume {run}"
    summary = replace(summary, state=RunState.COMPLETED)
    assert next_command(summary)[0] == f"evalfleet retry {run} --only held"
    summary = replace(summary, tasks=replace(summary.tasks, held=0))
    assert next_command(summary)[0] == f"evalfleet retry {run} --only failed"
    summary = replace(summary, tasks=replace(summary.tasks, failed=0))
    assert next_command(summary)[0].startswith(f"evalfleet report {run}")


def test_repeats_are_told_by_task(home: Path) -> None:
    builder = RunBuilder(home, [f"{task}_{seed}" for task in ("a", "b") for seed in range(3)], payload={}).begin()
    for key, score in {"a_0": 1.0, "a_1": 0.0, "a_2": 0.5, "b_0": 0.0}.items():
        builder.attempt(key, score)
    builder.attempt("b_1", kind=Kind.TASK_ERROR, then=TaskState.FAILED)
    builder.attempt("b_2", kind=Kind.PREEMPTED, blame=Blame.POOL, then=TaskState.HELD)
    whole, short = summarise(builder.store, builder.run), summarise(builder.store, builder.run, results=False)
    builder.close()
    found = whole.repeats
    assert found is not None
    assert found.by_task is not None
    assert [(one.k, one.tasks, one.score) for one in found.pass_at] == [
        (1, 2, pytest.approx(1 / 6)),
        (2, 2, pytest.approx(1 / 3)),
        (3, 1, 1.0),
    ]
    assert to_builtins(found.by_task[1]) == {
        "task": "b", "domain": "b", "episodes": 3, "counted": 2, "successes": 0, "score": 0.0,
        "low": 0.0, "high": 0.0, "deviation": 0.0, "pass_at": [0.0, 0.0],
    }  # fmt: skip
    assert (found.by_task[0].low, found.by_task[0].high) == (0.0, 1.0)
    assert short.repeats == replace(found, by_task=None)
    low, high = whole.scores.ci95.valid or (0, 0)
    assert high - low > 0.6, "two tasks, not five episodes"
    screen = paint(overview(whole, 100), colour=False)
    assert "Pass@3       100.0%" in screen
    assert "6   episodes of 2 tasks: 0 always solved, 1 at times, 1 never; spread ±25.0" in screen


def test_a_run_without_repeats_says_nothing_of_them(home: Path) -> None:
    builder = RunBuilder(home, ["a_0", "b_0"], payload={}).begin()
    builder.attempt("a_0", 1.0)
    summary = summarise(builder.store, builder.run)
    builder.close()
    assert summary.repeats is None
    assert "Repeats" not in paint(overview(summary, 100), colour=False)
