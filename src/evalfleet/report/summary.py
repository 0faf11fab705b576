"""The summary of a run: the one answer behind `run --json`, `report`, the final screen and the HTML page.

Its keys are a public contract, described in docs/reference/summary.md.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from evalfleet.answers import summary as answers
from evalfleet.answers.task_result import TaskFailure, TaskResult
from evalfleet.core import cost as costs
from evalfleet.core.statistics import scores as stats
from evalfleet.core.statistics.repeats import Repeats
from evalfleet.errors import NotFound
from evalfleet.model import JsonObject, Outcome, Run, RunState, TaskState
from evalfleet.report.failure_groups import read_groups
from evalfleet.report.plans import plan_of_run
from evalfleet.report.removed import removed_parts
from evalfleet.report.repeats import bounds, intervals, repeats_of, told
from evalfleet.report.text import printable
from evalfleet.store.reader import StoreReader
from evalfleet.store.rows import from_json

OK = 0
BELOW = 1
PAUSED = 3

Row = dict[str, Any]

_MOST_HELD = 20
_MOST_DOMAINS = 12
_NO_SCORES = answers.Intervals(strict=None, valid=None)


def summarise(store: StoreReader, run: Run, *, results: bool = True) -> answers.Summary:
    """Summarise one moment of a run.

    `run` names it; its present state is read anew, with everything else, in one snapshot.
    Without `results` only sums are read, whatever the number of tasks.
    """
    with store.snapshot():
        run = store.runs.get(run.id)
        sums, failures = store.tasks.sums(run.id), store.attempts.failure_sums(run.id)
        until = _until(store, run)
        duration_s = None if run.started_at is None else max(0.0, until - run.started_at)
        tasks, scores = task_counts(sums), _scores(sums)
        groups, common = read_groups(store, run)
        summary = answers.Summary.copy_of(
            run,
            run=run.id,
            reason=reason_of(run.reason),
            tasks=tasks,
            scores=scores,
            accept=run.policy.accept,
            accepted=accepted(scores.coverage, run.policy.accept),
            attempts=_attempts(
                store.attempts.sums(run.id), store.attempts.doubled(run.id) if run.policy.speculate else 0
            ),
            failures=_tally(failures, "kind"),
            failures_by_blame=_tally(failures, "blame"),
            failure_kinds=[_failure_kind(row) for row in failures],
            failure_groups=groups,
            common_failure=common,
            held=[answers.HeldTask(**row) for row in store.tasks.held(run.id, _MOST_HELD)],
            cost=_cost(store, run, tasks, duration_s),
            retry_rate=_share(
                sum(row["count"] for row in sums if row["retried"]), tasks.total - sum(row["untried"] for row in sums)
            ),
            retry_bias=_retry_bias(sums),
            avg_task_duration_s=_mean_duration(sums),
            duration_s=duration_s,
            by_domain=_by_domain(sums),
            repeats=None,
            study=None,
            plan=plan_of_run(store, run),
            results=None,
            imported=is_imported(store, run.id),
            pinned=store.retention.pin_of(run.id) is not None,
            removed=tuple(removed_parts(store, run.id)),
        )
        summary = _with_repeats(summary, repeats_of(store.tasks.episode_sums(run.id)), by_task=results)
        if run.policy.study is not None:
            summary = _as_study(summary, store, run)
        if results:
            summary = replace(summary, results=[task_result(row) for row in store.tasks.result_rows(run.id)])
    return summary


def is_imported(store: StoreReader, run_id: str) -> bool:
    """Whether the run was made of the results of another program: its tasks cannot be run here."""
    try:
        payload = store.tasks.at(run_id, 1).spec.payload
    except NotFound:
        return False  # a run that is open may have no task yet
    return isinstance(payload, dict) and "imported" in payload


def exit_code(summary: answers.Summary) -> int:
    """The exit code for the state of a run: 0 completed with enough coverage, 3 paused, else 1.

    Of a study: 0 completed with a configuration that keeps all limits.
    """
    if summary.state is RunState.PAUSED:
        return PAUSED
    reached = summary.accepted if summary.study is None else summary.study.best is not None
    return OK if summary.state is RunState.COMPLETED and reached else BELOW


def covered(summary: answers.Summary) -> str | None:
    """ "6 of 60 tasks: files 2 of 20, forms 2 of 20, search 2 of 20"; None where all count, none does, or it is a study."""
    domains = {name: (facts.counted, facts.total) for name, facts in summary.by_domain.items()}
    counted, total = (sum(pair[place] for pair in domains.values()) for place in (0, 1))
    if summary.study is not None or not 0 < counted < total:
        return None
    said = f"{counted:,} of {total:,} tasks"
    if len(domains) == 1:
        return said
    # Those that are covered least come first: they are what the score does not speak of.
    ordered = sorted(domains, key=lambda name: (domains[name][0] / domains[name][1], name))
    parts = [f"{printable(name)} {domains[name][0]:,} of {domains[name][1]:,}" for name in ordered[:_MOST_DOMAINS]]
    if len(ordered) > _MOST_DOMAINS:
        parts.append(f"and {len(ordered) - _MOST_DOMAINS} more domains")
    return f"{said}: {', '.join(parts)}"


def reason_of(reason: JsonObject | None) -> answers.Reason | None:
    if reason is None:
        return None
    return answers.Reason(
        cause=str(reason.get("cause")), message=str(reason.get("message", "")), usd_per_hour=reason.get("usd_per_hour")
    )


def accepted(coverage: float, accept: float) -> bool:
    """Whether enough tasks count. 95 of 100 reach 0.95, whatever the last digit of a float says."""
    return coverage >= accept - 1e-9


def _until(store: StoreReader, run: Run) -> float:
    """The end of the run's duration: a pause does not lengthen it."""
    last = store.events.last(run.id, "run.paused") if run.state is RunState.PAUSED else None
    return run.ended_at or (last.at if last else store.now())


def _with_repeats(summary: answers.Summary, repeats: list[Repeats], *, by_task: bool) -> answers.Summary:
    """Add repeated tasks. Then intervals take the task as the unit: its episodes are not independent."""
    summary = replace(summary, repeats=told(repeats, by_task=by_task))
    if sum(one.episodes for one in repeats) != summary.tasks.total:
        return summary  # nothing is repeated, or a part of the run has no episodes
    by_domain = {
        domain: replace(facts, ci95_valid=intervals([one for one in repeats if one.domain == domain]).valid)
        for domain, facts in summary.by_domain.items()
    }
    return replace(summary, scores=replace(summary.scores, ci95=intervals(repeats)), by_domain=by_domain)


def _as_study(summary: answers.Summary, store: StoreReader, run: Run) -> answers.Summary:
    """Add what a study found. Its trials' verdicts say that they were measured; their mean is not a score."""
    from evalfleet.report.studies.study import study_found  # the whole of `tune`, which plain runs need not load

    bias = summary.retry_bias
    return replace(
        summary,
        study=study_found(store, run),
        scores=without_scores(summary.scores),
        by_domain={
            domain: replace(facts, score_strict=None, score_valid=None, ci95_valid=None)
            for domain, facts in summary.by_domain.items()
        },
        retry_bias=answers.RetryBias(
            first_attempt=replace(bias.first_attempt, score=None), retried=replace(bias.retried, score=None)
        ),
    )


def without_scores(scores: answers.Scores) -> answers.Scores:
    """Of a study: how many trials were measured is known, a score is not."""
    return replace(scores, strict=None, valid=None, ci95=_NO_SCORES)


def task_counts(sums: list[Row]) -> answers.TaskCounts:
    """How many tasks are in each state, of rows with `state` and `count`."""
    return answers.TaskCounts(total=sum(row["count"] for row in sums), **_by_state(sums))


def _by_state(sums: list[Row]) -> dict[str, int]:
    counts = dict.fromkeys(map(str, TaskState), 0)
    for row in sums:
        counts[row["state"]] += row["count"]
    return counts


def _raw_scores(sums: list[Row]) -> stats.Scores:
    counts = task_counts(sums)
    return stats.scores(
        total=counts.total,
        verdicts=counts.done,
        score_sum=sum(row["score"] for row in sums),
        failed=counts.failed,
    )


def _scores(sums: list[Row]) -> answers.Scores:
    return score_facts(_raw_scores(sums), int(sum(row["successes"] for row in sums)))


def score_facts(scores: stats.Scores, passed: int) -> answers.Scores:
    ci95 = answers.Intervals(strict=bounds(scores.ci95_strict), valid=bounds(scores.ci95_valid))
    return answers.Scores.copy_of(scores, passed=passed, ci95=ci95)


def _attempts(rows: list[Row], doubled: int) -> answers.AttemptCounts:
    by_outcome = {str(outcome): 0 for outcome in Outcome}
    for row in rows:
        if row["outcome"] is not None:
            by_outcome[row["outcome"]] = row["count"]
    total = sum(row["count"] for row in rows)
    return answers.AttemptCounts(total=total, by_outcome=by_outcome, doubled=doubled)


def _tally(rows: list[Row], column: str) -> dict[str, int]:
    tally: dict[str, int] = {}
    for row in rows:
        tally[row[column]] = tally.get(row[column], 0) + row["count"]
    return tally


def _failure_kind(row: Row) -> answers.FailureKind:
    return answers.FailureKind(
        kind=row["kind"],
        blame=row["blame"],
        attempts=row["count"],
        tasks=row["tasks"],
        key=row["key"],
        evidence=row["evidence"] or "",
    )


def _cost(store: StoreReader, run: Run, tasks: answers.TaskCounts, duration_s: float | None) -> answers.Cost:
    total, waste = store.costs.total_usd(run.id), store.costs.waste_sums(run.id)
    forecast = costs.forecast(
        total_usd=total,
        decided=tasks.total - tasks.queued - tasks.running,
        tasks=tasks.total,
        elapsed_s=duration_s or 0.0,
    )
    return answers.Cost(
        total_usd=round(total, 6),
        waste_usd=round(sum(waste.values()), 6),
        waste={what: round(usd, 6) for what, usd in sorted(waste.items()) if usd > 0},
        idle_usd=round(store.costs.idle_usd(run.id), 6),
        estimated_total_usd=_rounded(forecast.estimated_total_usd),
        cost_per_task_usd=_rounded(forecast.cost_per_task_usd),
        hourly_rate_usd=_rounded(forecast.hourly_rate_usd),
        budget_usd=run.policy.budget_usd,
    )


def _retry_bias(sums: list[Row]) -> answers.RetryBias:
    return answers.RetryBias(first_attempt=_scored(sums, retried=0), retried=_scored(sums, retried=1))


def _scored(sums: list[Row], retried: int) -> answers.ScoredTasks:
    rows = [row for row in sums if row["state"] == "done" and row["retried"] == retried]
    n = sum(row["count"] for row in rows)
    return answers.ScoredTasks(n=n, score=_share(sum(row["score"] for row in rows), n))


def _mean_duration(sums: list[Row]) -> float | None:
    """Over tasks decided on their own merits: of the attempt that decided each."""
    rows = [row for row in sums if row["state"] in ("done", "failed")]
    return _share(sum(row["duration_s"] for row in rows), sum(row["timed"] for row in rows))


def _by_domain(sums: list[Row]) -> dict[str, answers.DomainSummary]:
    domains: dict[str, list[Row]] = {}
    for row in sums:
        domains.setdefault(row["domain"], []).append(row)
    return {domain: _domain(rows) for domain, rows in domains.items()}


def _domain(rows: list[Row]) -> answers.DomainSummary:
    scores, counts = _raw_scores(rows), _by_state(rows)
    return answers.DomainSummary(
        total=sum(counts.values()),
        **counts,
        counted=scores.verdicts + counts["failed"],
        score_strict=scores.strict,
        score_valid=scores.valid,
        ci95_valid=bounds(scores.ci95_valid),
        avg_duration_s=_mean_duration(rows),
    )


def task_result(row: Row) -> TaskResult:
    state = row["state"]
    failure = None
    if row["kind"] is not None and state != "done":
        failure = TaskFailure(kind=row["kind"], blame=row["blame"], evidence=row["evidence"])
    return TaskResult(
        number=row["number"],
        key=row["key"],
        domain=row["domain"],
        state=TaskState(state),
        score=row["score"],
        success=None if row["success"] is None else bool(row["success"]),
        steps=row["steps"],
        metrics=from_json(row["metrics"]),
        duration_s=row["duration_s"],
        attempts=row["attempts"],
        worker=row["worker"],
        failure=failure,
        reason=row["reason"] if state in ("failed", "held", "cancelled") else None,
    )


def _rounded(usd: float | None) -> float | None:
    return None if usd is None else round(usd, 6)


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole else None
