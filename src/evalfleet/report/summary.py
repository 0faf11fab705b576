"""The summary of a run: the one object behind `run --json`, `report`, the final screen and the HTML page.

Its keys are a public contract, described in docs/reference/summary.md.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NotRequired, TypedDict

from evalfleet.core import cost as costs
from evalfleet.core.statistics import scores as stats
from evalfleet.core.statistics.repeats import Repeats
from evalfleet.model import JsonObject, Outcome, Run, RunState, TaskState
from evalfleet.report.failure_groups import CommonFailure, FailureGroup, read_groups
from evalfleet.report.repeats import bounds, intervals, repeats_of, told
from evalfleet.store.base.store import StoreReader

OK = 0
BELOW = 1
PAUSED = 3

Row = dict[str, Any]


class Scores(TypedDict):
    strict: float | None
    valid: float | None
    coverage: float
    verdicts: int
    passed: int  # verdicts that are a success
    ci95: dict[str, list[float] | None]


class Cost(TypedDict):
    total_usd: float
    waste_usd: float
    waste: dict[str, float]  # by what became of the attempts: failed, lost, preempted, cancelled, unused
    idle_usd: float  # besides: workers between their attempts
    estimated_total_usd: float | None
    cost_per_task_usd: float | None
    hourly_rate_usd: float | None
    budget_usd: float | None


class FailureKind(TypedDict):
    kind: str
    blame: str
    attempts: int
    tasks: int
    key: str
    evidence: str


class Summary(TypedDict):
    run: str
    name: str
    state: str
    reason: NotRequired[JsonObject]
    created_at: float
    started_at: float | None
    ended_at: float | None
    tasks: dict[str, int]
    scores: Scores
    accept: float
    accepted: bool
    attempts: JsonObject
    failures: dict[str, int]
    failures_by_blame: dict[str, int]
    failure_kinds: list[FailureKind]
    failure_groups: list[FailureGroup]
    common_failure: CommonFailure | None
    held: list[JsonObject]
    cost: Cost
    retry_rate: float | None
    retry_bias: dict[str, JsonObject]
    avg_task_duration_s: float | None
    duration_s: float | None
    by_domain: dict[str, JsonObject]
    repeats: JsonObject | None
    study: NotRequired[JsonObject]
    results: NotRequired[list[JsonObject]]


_MOST_HELD = 20


def summarise(store: StoreReader, run: Run, *, results: bool = True) -> Summary:
    """Summarise one moment of a run.

    `run` names it; its present state is read anew, with everything else, in one snapshot.
    Without `results` only sums are read, whatever the number of tasks.
    """
    with store.snapshot():
        run = store.run(run.id)
        sums = store.task_sums(run.id)
        summary = _summary(run, _until(store, run), sums, store.attempt_sums(run.id), store.failure_sums(run.id))
        summary["cost"] = _cost(store, run, summary)
        summary["held"] = store.held(run.id, _MOST_HELD)
        summary["failure_groups"], summary["common_failure"] = read_groups(store, run)
        _add_repeats(summary, repeats_of(store.episode_sums(run.id)), by_task=results)
        if run.policy.study is not None:
            _as_study(summary, store, run)
        if results:
            summary["results"] = [task_row(row) for row in store.result_rows(run.id)]
    return summary


def exit_code(summary: Summary | Mapping[str, Any]) -> int:
    """The exit code that says how a run stands: 0 completed with enough coverage, 3 paused, else 1.

    Of a study: 0 completed with a configuration that keeps all limits.
    """
    state = summary["state"]
    if state == RunState.PAUSED:
        return PAUSED
    reached = summary["accepted"] if "study" not in summary else summary["study"]["best"] is not None
    return OK if state == RunState.COMPLETED and reached else BELOW


def accepted(coverage: float, accept: float) -> bool:
    """Whether enough tasks count. 95 of 100 reach 0.95, whatever the last digit of a float says."""
    return coverage >= accept - 1e-9


def _until(store: StoreReader, run: Run) -> float:
    """The end of the run's duration: a pause does not lengthen it."""
    last = store.last_event(run.id, "run.paused") if run.state is RunState.PAUSED else None
    return run.ended_at or (last.at if last else store.now())


def _summary(run: Run, until: float, sums: list[Row], attempts: list[Row], failures: list[Row]) -> Summary:
    tasks = _counts(sums)
    scores = _scores(sums)
    summary: Summary = {
        "run": run.id,
        "name": run.name,
        "state": str(run.state),
        "created_at": run.created_at,
        "started_at": run.started_at,
        "ended_at": run.ended_at,
        "tasks": tasks,
        "scores": scores,
        "accept": run.policy.accept,
        "accepted": accepted(scores["coverage"], run.policy.accept),
        "attempts": _attempts(attempts),
        "failures": _tally(failures, "kind"),
        "failures_by_blame": _tally(failures, "blame"),
        "failure_kinds": [_failure_kind(row) for row in failures],
        "failure_groups": [],
        "common_failure": None,
        "held": [],
        "cost": Cost(
            total_usd=0.0,
            waste_usd=0.0,
            waste={},
            idle_usd=0.0,
            estimated_total_usd=None,
            cost_per_task_usd=None,
            hourly_rate_usd=None,
            budget_usd=run.policy.budget_usd,
        ),
        "retry_rate": _share(
            sum(row["count"] for row in sums if row["retried"]), tasks["total"] - sum(row["untried"] for row in sums)
        ),
        "retry_bias": _retry_bias(sums),
        "avg_task_duration_s": _mean_duration(sums),
        "duration_s": None if run.started_at is None else max(0.0, until - run.started_at),
        "by_domain": _by_domain(sums),
        "repeats": None,
    }
    if run.reason is not None:
        summary["reason"] = run.reason
    return summary


def _add_repeats(summary: Summary, repeats: list[Repeats], *, by_task: bool) -> None:
    """Tell of repeated tasks. Then the intervals take the task as the unit: its episodes are not independent."""
    summary["repeats"] = told(repeats, by_task=by_task)
    if sum(one.episodes for one in repeats) != summary["tasks"]["total"]:
        return  # nothing is repeated, or a part of the run has no episodes
    summary["scores"]["ci95"] = intervals(repeats)
    for domain, facts in summary["by_domain"].items():
        facts["ci95_valid"] = intervals([one for one in repeats if one.domain == domain])["valid"]


def _as_study(summary: Summary, store: StoreReader, run: Run) -> None:
    """Tell of a study what it found. Its trials' verdicts say that they were measured; a mean of them is no score."""
    from evalfleet.report.studies.study import study_found  # the whole of `tune`, which plain runs need not load

    summary["study"] = study_found(store, run)
    scores = summary["scores"]
    summary["scores"] = {**scores, "strict": None, "valid": None, "ci95": {"strict": None, "valid": None}}
    for facts in (*summary["by_domain"].values(), *summary["retry_bias"].values()):
        facts.update({name: None for name in ("score", "score_strict", "score_valid", "ci95_valid") if name in facts})


def _counts(sums: list[Row]) -> dict[str, int]:
    counts = {"total": sum(row["count"] for row in sums)}
    for state in _STATES:
        counts[state] = sum(row["count"] for row in sums if row["state"] == state)
    return counts


_STATES = tuple(
    str(state)
    for state in (
        TaskState.DONE,
        TaskState.FAILED,
        TaskState.HELD,
        TaskState.CANCELLED,
        TaskState.QUEUED,
        TaskState.RUNNING,
    )
)


def _raw_scores(sums: list[Row]) -> stats.Scores:
    counts = _counts(sums)
    return stats.scores(
        total=counts["total"],
        verdicts=counts["done"],
        score_sum=sum(row["score"] for row in sums),
        failed=counts["failed"],
    )


def _scores(sums: list[Row]) -> Scores:
    scores = _raw_scores(sums)
    return {
        "strict": scores.strict,
        "valid": scores.valid,
        "coverage": scores.coverage,
        "verdicts": scores.verdicts,
        "passed": int(sum(row["successes"] for row in sums)),
        "ci95": {"strict": bounds(scores.ci95_strict), "valid": bounds(scores.ci95_valid)},
    }


def _attempts(rows: list[Row]) -> JsonObject:
    by_outcome = {str(outcome): 0 for outcome in Outcome}
    for row in rows:
        if row["outcome"] is not None:
            by_outcome[row["outcome"]] = row["count"]
    return {"total": sum(row["count"] for row in rows), "by_outcome": by_outcome}


def _tally(rows: list[Row], column: str) -> dict[str, int]:
    tally: dict[str, int] = {}
    for row in rows:
        tally[row[column]] = tally.get(row[column], 0) + row["count"]
    return tally


def _failure_kind(row: Row) -> FailureKind:
    return {
        "kind": row["kind"],
        "blame": row["blame"],
        "attempts": row["count"],
        "tasks": row["tasks"],
        "key": row["key"],
        "evidence": row["evidence"] or "",
    }


def _cost(store: StoreReader, run: Run, summary: Summary) -> Cost:
    total, waste = store.cost_usd(run.id), store.waste_sums(run.id)
    tasks = summary["tasks"]
    forecast = costs.forecast(
        total_usd=total,
        decided=tasks["total"] - tasks["queued"] - tasks["running"],
        tasks=tasks["total"],
        elapsed_s=summary["duration_s"] or 0.0,
    )
    return {
        "total_usd": round(total, 6),
        "waste_usd": round(sum(waste.values()), 6),
        "waste": {what: round(usd, 6) for what, usd in sorted(waste.items()) if usd > 0},
        "idle_usd": round(store.idle_usd(run.id), 6),
        "estimated_total_usd": _rounded(forecast.estimated_total_usd),
        "cost_per_task_usd": _rounded(forecast.cost_per_task_usd),
        "hourly_rate_usd": _rounded(forecast.hourly_rate_usd),
        "budget_usd": run.policy.budget_usd,
    }


def _retry_bias(sums: list[Row]) -> dict[str, JsonObject]:
    bias: dict[str, JsonObject] = {}
    for name, retried in (("first_attempt", 0), ("retried", 1)):
        rows = [row for row in sums if row["state"] == "done" and row["retried"] == retried]
        n = sum(row["count"] for row in rows)
        bias[name] = {"n": n, "score": _share(sum(row["score"] for row in rows), n)}
    return bias


def _mean_duration(sums: list[Row]) -> float | None:
    """Over tasks that are decided by themselves: of the attempt that decided each."""
    rows = [row for row in sums if row["state"] in ("done", "failed")]
    return _share(sum(row["duration_s"] for row in rows), sum(row["timed"] for row in rows))


def _by_domain(sums: list[Row]) -> dict[str, JsonObject]:
    domains: dict[str, list[Row]] = {}
    for row in sums:
        domains.setdefault(row["domain"], []).append(row)
    by_domain: dict[str, JsonObject] = {}
    for domain, rows in domains.items():
        scores = _raw_scores(rows)
        by_domain[domain] = {
            **_counts(rows),
            "counted": scores.verdicts + sum(row["count"] for row in rows if row["state"] == "failed"),
            "score_strict": scores.strict,
            "score_valid": scores.valid,
            "ci95_valid": bounds(scores.ci95_valid),
            "avg_duration_s": _mean_duration(rows),
        }
    return by_domain


def task_row(row: Row) -> JsonObject:
    """One of `results`."""
    state = row["state"]
    failure = None
    if row["kind"] is not None and state != "done":
        failure = {"kind": row["kind"], "blame": row["blame"], "evidence": row["evidence"]}
    return {
        "key": row["key"],
        "domain": row["domain"],
        "state": state,
        "score": row["score"],
        "success": None if row["success"] is None else bool(row["success"]),
        "steps": row["steps"],
        "metrics": None if row["metrics"] is None else json.loads(row["metrics"]),
        "duration_s": row["duration_s"],
        "attempts": row["attempts"],
        "worker": row["worker"],
        "failure": failure,
        "reason": row["reason"] if state in ("failed", "held", "cancelled") else None,
    }


def _rounded(usd: float | None) -> float | None:
    return None if usd is None else round(usd, 6)


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole else None
