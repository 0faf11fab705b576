"""What Prometheus reads of one run. Sums alone are read, whatever the number of its tasks."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import asdict

from evalfleet.answers.summary import Cost, Summary
from evalfleet.daemon.alerts.run_facts import lost_hosts
from evalfleet.engine.requests import barred
from evalfleet.model import Outcome, Run
from evalfleet.report.run_row import open_breaker
from evalfleet.report.summary import summarise
from evalfleet.store.reader import StoreReader
from evalfleet.web.metrics.exposition import Sample, sample, summary


def run_samples(store: StoreReader, run_id: str) -> Iterator[Sample]:
    with store.snapshot():
        run = store.runs.get(run_id)
        told = summarise(store, run, results=False)
        yield from _standing(store, run, told)
        yield from _money(run_id, told.cost)
        yield from _workers(store, run)
        yield from _times(store, run_id)


def _standing(store: StoreReader, run: Run, told: Summary) -> Iterator[Sample]:
    run_id, pool = run.id, run.policy.pool or ""
    live = len(store.attempts.live(run_id))
    yield from sample("run_info", 1, run=run_id, name=run.name, state=str(run.state), pool=pool)
    yield from sample("run_driven", store.runs.driver(run_id) is not None, run=run_id)
    for state, count in asdict(told.tasks).items():
        if state != "total":
            yield from sample("run_tasks", count, run=run_id, state=state)
    for outcome in Outcome:
        count = told.attempts.by_outcome[outcome]
        yield from sample("run_attempts", count, run=run_id, outcome=str(outcome))
    yield from sample("run_attempts", live, run=run_id, outcome="live")
    for kind in told.failure_kinds:
        yield from sample("run_failures", kind.attempts, run=run_id, kind=kind.kind, blame=kind.blame)
    yield from sample("run_retry_ratio", told.retry_rate, run=run_id)
    yield from sample("run_coverage_ratio", told.scores.coverage, run=run_id)
    yield from sample("run_score_ratio", told.scores.strict, run=run_id, kind="strict")
    yield from sample("run_score_ratio", told.scores.valid, run=run_id, kind="valid")
    yield from sample("run_breaker_open", open_breaker(store, run) is not None, run=run_id)


def _money(run_id: str, cost: Cost) -> Iterator[Sample]:
    yield from sample("run_cost_usd", cost.total_usd, run=run_id)
    yield from sample("run_waste_usd", cost.waste_usd, run=run_id)
    yield from sample("run_estimated_total_usd", cost.estimated_total_usd, run=run_id)
    yield from sample("run_hourly_rate_usd", cost.hourly_rate_usd, run=run_id)
    yield from sample("run_cost_per_task_usd", cost.cost_per_task_usd, run=run_id)
    yield from sample("run_budget_usd", cost.budget_usd, run=run_id)


def _workers(store: StoreReader, run: Run) -> Iterator[Sample]:
    run_id = run.id
    busy = {row["worker"] for row in store.attempts.live(run_id)}
    yield from sample("run_workers", run.policy.workers, run=run_id, state="allowed")
    yield from sample("run_workers", len(busy), run=run_id, state="busy")
    yield from sample("run_workers", len(barred(store, run_id)), run=run_id, state="quarantined")
    yield from sample("run_workers", len(lost_hosts(store.events.workers(run_id))), run=run_id, state="lost")


def _times(store: StoreReader, run_id: str) -> Iterator[Sample]:
    now = store.now()
    sums = store.attempts.time_sums(run_id)
    for name in ("start", "dispatch", "queue_wait", "attempt"):
        yield from summary(f"run_{name}_seconds", sums[f"{name}_count"], sums[f"{name}_s"], run=run_id)
    if sums["oldest_claim"] is not None:
        yield from sample("run_lease_age_seconds", max(0.0, now - sums["oldest_claim"]), run=run_id)
    if sums["next_expiry"] is not None:
        yield from sample("run_lease_left_seconds", sums["next_expiry"] - now, run=run_id)
    if sums["waits_since"] is not None:
        yield from sample("run_waiting_seconds", max(0.0, now - sums["waits_since"]), run=run_id)
