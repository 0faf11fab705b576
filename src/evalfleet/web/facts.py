"""What the rules of alerts need to know of a run, read from the store."""

from __future__ import annotations

from evalfleet.core.alerts import LiveTask, RunFacts
from evalfleet.engine.steering import barred
from evalfleet.model import Event, Run, RunState, TaskState
from evalfleet.report.runs import open_breaker
from evalfleet.store.base import StoreReader

_RECENT = 20
_LOOK_BACK = 2000  # events
_OVER = (RunState.COMPLETED, RunState.CANCELLED)
_PROGRESS = frozenset(
    {
        *("attempt.claimed", "attempt.started", "attempt.readied", "attempt.progressed", "attempt.finished"),
        *("run.started", "run.resumed", "run.amended"),
    }
)
_SINCE = frozenset({"run.started", "run.resumed", "run.taken", "run.left"})


def active_runs(store: StoreReader, begun: float, watched: set[str]) -> list[str]:
    """Runs that are not over, or ended since `begun`, or of which something is still said to hold."""
    live = store.runs_page(limit=1000, states=["queued", "running", "paused"])
    over = store.runs_page(limit=100, states=["completed", "cancelled"])
    runs: list[Run] = [row["run"] for row in live]
    runs += [run for row in over if (run := row["run"]).id in watched or (run.ended_at or 0.0) >= begun]
    return [run.id for run in runs]


def facts_of(store: StoreReader, run_id: str) -> RunFacts:
    """One moment of a run. Reads sums and the latest events, whatever the number of its tasks."""
    with store.snapshot():
        run = store.run(run_id)
        now = store.now()
        over = run.state in _OVER
        counts = store.counts(run_id)
        events = store.events_before(run_id, limit=_LOOK_BACK)  # newest first
        sums = store.task_sums(run_id)
        tasks = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
        return RunFacts(
            now=now,
            name=run.name,
            state=run.state,
            cause=(run.reason or {}).get("cause"),
            message=str((run.reason or {}).get("message", "")),
            driven=over or store.driver(run_id) is not None,
            since=_at(events, _SINCE) or run.started_at,
            waiting=counts[TaskState.QUEUED],
            tried=sum(row["count"] - row["untried"] for row in sums),
            retried=sum(row["count"] for row in sums if row["retried"]),
            tasks=tasks,
            live=() if over else _live(store, run_id, now),
            durations=[] if over else store.durations(run_id),
            progressed_at=_at(events, _PROGRESS),
            finished_at=_at(events, frozenset({"attempt.finished"})),
            recent=_recent(events),
            breaker=None if over else open_breaker(store, run),
            cost_usd=store.cost_usd(run_id),
            budget_usd=run.policy.budget_usd,
            lost=frozenset() if over else _lost(events),
            quarantined=frozenset() if over else barred(store, run_id),
            ended_at=run.ended_at if over else None,
        )


def _live(store: StoreReader, run_id: str, now: float) -> tuple[LiveTask, ...]:
    return tuple(
        LiveTask(
            key=row["key"],
            elapsed_s=now - (row["ready_at"] or row["started_at"] or row["claimed_at"]),
            expected_s=store.task_at(run_id, row["task_number"]).expected_s,
        )
        for row in store.live_attempts(run_id)
    )


def _at(events: list[Event], types: frozenset[str]) -> float | None:
    return next((event.at for event in events if event.type in types), None)


def _recent(events: list[Event]) -> tuple[bool, ...]:
    """Of the latest judged attempts, oldest first, whether each gave a verdict; those that were cancelled are left out."""
    outcomes = [event.data.get("outcome") for event in events if event.type == "attempt.finished"]
    kept = [outcome == "ok" for outcome in outcomes if outcome != "cancelled"]
    return tuple(reversed(kept[:_RECENT]))


def _lost(events: list[Event]) -> frozenset[str]:
    """Hosts that were given up and have not come back."""
    lost: set[str] = set()
    for event in reversed(events):
        host = str(event.data.get("host") or "")
        if event.type == "worker.lost":
            lost.add(host)
        elif event.type == "worker.returned":
            lost.discard(host)
    return frozenset(lost)
