"""A run as one row of a list: behind `evalfleet status --json` and the dashboard's list."""

from __future__ import annotations

from collections.abc import Sequence

from evalfleet.answers.alerts import Alert
from evalfleet.answers.base import Range
from evalfleet.answers.runs import Problem, RunRow
from evalfleet.core.statistics.scores import eta, scores
from evalfleet.model import BreakerState, Run, RunState
from evalfleet.report.repeats import bounds
from evalfleet.report.summary import reason_of, score_facts, task_counts, without_scores
from evalfleet.report.text import count
from evalfleet.store.reader import StoreReader

_LIVE = (RunState.QUEUED, RunState.RUNNING, RunState.PAUSED)


def run_row(store: StoreReader, run: Run) -> RunRow:
    """The state of a run, from sums alone."""
    sums = store.tasks.state_sums(run.id)
    tasks = task_counts(sums)
    found = scores(
        total=tasks.total,
        verdicts=tasks.done,
        score_sum=sum(row["score"] for row in sums),
        failed=tasks.failed,
    )
    told, study = score_facts(found, int(sum(row["successes"] for row in sums))), None
    if run.policy.study is not None:
        from evalfleet.report.studies.study import (
            study_found,  # the whole of `tune`, which lists of plain runs need not load
        )

        told, study = without_scores(told), study_found(store, run)
    return RunRow.copy_of(
        run,
        run.policy,
        run=run.id,
        reason=reason_of(run.reason),
        driven=run.state in _LIVE and store.runs.driver(run.id) is not None,
        tasks=tasks,
        scores=told,
        study=study,
        cost_usd=round(store.costs.total_usd(run.id), 6),
        distribution=str(run.policy.distribution),
    )


def outlook(store: StoreReader, run: Run, waiting: int) -> Range | None:
    """In how many seconds a running run should be over: [low, high]."""
    if run.state is not RunState.RUNNING:
        return None
    now = store.now()
    elapsed = [
        max(0.0, now - (row["ready_at"] or row["started_at"] or row["claimed_at"]))
        for row in store.attempts.live(run.id)
    ]
    return bounds(eta(store.tasks.durations(run.id), waiting=waiting, elapsed=elapsed, workers=run.policy.workers))


def open_breaker(store: StoreReader, run: Run) -> str | None:
    """Why the run's breaker is open; None while it is closed."""
    data = store.runs.breaker(run.id)
    if data is None:
        return None
    from evalfleet.core.breaker import Breaker  # most runs have none, and `status` starts quickly

    breaker = Breaker.from_json(data)
    if breaker.state is BreakerState.CLOSED:
        return None
    return str(breaker.cause) if breaker.cause else str(breaker.state)


def problems(row: RunRow, breaker: str | None, alerts: Sequence[Alert]) -> list[Problem]:
    """What a person should look at, worst first."""
    found: list[Problem] = []
    message = row.reason.message if row.reason else ""
    if row.state is RunState.PAUSED:
        found.append(Problem(severity="critical", text=f"paused: {message}"))
    if row.state is RunState.RUNNING and not row.driven:
        found.append(
            Problem(severity="critical", text=f"no controller drives it; `evalfleet resume {row.run}` goes on")
        )
    if breaker is not None and row.state is RunState.RUNNING:
        found.append(Problem(severity="critical", text=f"the breaker is open: {breaker}"))
    found += [Problem(severity=alert.severity, text=alert.message) for alert in alerts]
    for number, said in ((row.tasks.failed, "failed"), (row.tasks.held, "held: they need a person")):
        if number:
            found.append(Problem(severity="warning", text=f"{count(number, 'task')} {said}"))
    # Alerts of one cause may say the same, such as those of two shares of a budget that were passed at once.
    once: dict[str, Problem] = {}
    for one in found:
        once.setdefault(one.text, one)
    return sorted(once.values(), key=lambda one: one.severity != "critical")
