"""A run as one row of a list: behind `evalfleet status --json` and the dashboard's list."""

from __future__ import annotations

from typing import Any

from evalfleet.core.breaker import Breaker
from evalfleet.core.statistics.scores import Interval, eta, scores
from evalfleet.model import BreakerState, JsonObject, Run, RunState, TaskState
from evalfleet.report.text import count
from evalfleet.store.base.store import StoreReader

_LIVE = (RunState.QUEUED, RunState.RUNNING, RunState.PAUSED)


def run_row(store: StoreReader, run: Run) -> JsonObject:
    """How a run stands, from sums alone."""
    sums = {row["state"]: row for row in store.state_sums(run.id)}
    counts = {str(state): sums[state]["count"] if state in sums else 0 for state in TaskState}
    total = sum(counts.values())
    found = scores(
        total=total,
        verdicts=counts["done"],
        score_sum=sum(row["score"] for row in sums.values()),
        failed=counts["failed"],
    )
    row: JsonObject = {
        "run": run.id,
        "name": run.name,
        "state": str(run.state),
        "reason": run.reason,
        "driven": run.state in _LIVE and store.driver(run.id) is not None,
        "tasks": {"total": total, **counts},
        "scores": {
            "strict": found.strict,
            "valid": found.valid,
            "coverage": found.coverage,
            "passed": int(sum(row["successes"] for row in sums.values())),
            "ci95": {"strict": bounds(found.ci95_strict), "valid": bounds(found.ci95_valid)},
        },
        "cost_usd": round(store.cost_usd(run.id), 6),
        "budget_usd": run.policy.budget_usd,
        "workers": run.policy.workers,
        "pool": run.policy.pool,
        "distribution": str(run.policy.distribution),
        "created_at": run.created_at,
        "started_at": run.started_at,
        "ended_at": run.ended_at,
    }
    if run.policy.study is not None:
        from evalfleet.report.studies.study import (
            study_found,  # the whole of `tune`, which lists of plain runs need not load
        )

        row["study"] = study_found(store, run)
        row["scores"] |= {"strict": None, "valid": None, "ci95": {"strict": None, "valid": None}}
    return row


def outlook(store: StoreReader, run: Run, waiting: int) -> list[float] | None:
    """In how many seconds a running run should be over: [low, high]."""
    if run.state is not RunState.RUNNING:
        return None
    now = store.now()
    elapsed = [
        max(0.0, now - (row["ready_at"] or row["started_at"] or row["claimed_at"]))
        for row in store.live_attempts(run.id)
    ]
    return bounds(eta(store.durations(run.id), waiting=waiting, elapsed=elapsed, workers=run.policy.workers))


def open_breaker(store: StoreReader, run: Run) -> str | None:
    """Why the run's breaker is open; None while it is closed."""
    data = store.breaker(run.id)
    if data is None:
        return None
    breaker = Breaker.from_json(data)
    if breaker.state is BreakerState.CLOSED:
        return None
    return str(breaker.cause) if breaker.cause else str(breaker.state)


def problems(row: JsonObject, breaker: str | None, alerts: list[JsonObject]) -> list[JsonObject]:
    """What a person should look at, worst first: severity and text."""
    found: list[JsonObject] = []
    state, tasks = row["state"], row["tasks"]
    message = row["reason"]["message"] if row["reason"] else ""
    if state == RunState.PAUSED:
        found.append(_problem("critical", f"paused: {message}"))
    if state == RunState.RUNNING and not row["driven"]:
        found.append(_problem("critical", f"nobody drives it; `evalfleet resume {row['run']}` goes on"))
    if breaker is not None and state == RunState.RUNNING:
        found.append(_problem("critical", f"the breaker is open: {breaker}"))
    found += [_problem(alert["severity"], alert["message"]) for alert in alerts]
    for word, text in (("failed", "failed"), ("held", "held: they need a person")):
        if tasks[word]:
            found.append(_problem("warning", f"{count(tasks[word], 'task')} {text}"))
    # Alerts of one cause may say the same, such as those of two shares of a budget that were passed at once.
    once: dict[str, JsonObject] = {}
    for one in found:
        once.setdefault(one["text"], one)
    return sorted(once.values(), key=lambda one: one["severity"] != "critical")


def bounds(interval: Interval | None) -> list[float] | None:
    return None if interval is None else [interval.low, interval.high]


def _problem(severity: str, text: str) -> dict[str, Any]:
    return {"severity": severity, "text": text}
