"""What the rules of alerts need to know of a run, read from the store."""

from __future__ import annotations

from collections.abc import Iterable

from evalfleet.core.alerts.run_checks import LiveTask, RunFacts, Unstarted
from evalfleet.engine.requests import barred
from evalfleet.model import Event, Kind, Outcome, Run, TaskState
from evalfleet.report.run_row import open_breaker
from evalfleet.store.reader import StoreReader

_RECENT = 20
_LOOK_BACK = 2000  # events
_PROGRESS = frozenset(
    {
        *("attempt.claimed", "attempt.started", "attempt.readied", "attempt.progressed", "attempt.finished"),
        *("run.started", "run.resumed", "run.amended"),
    }
)
_SINCE = frozenset({"run.started", "run.resumed", "run.taken", "run.left"})
_STARTS = frozenset({"attempt.readied", "attempt.progressed"})


def active_runs(store: StoreReader, begun: float, watched: set[str]) -> list[str]:
    """Runs that are not over, or ended since `begun`, or of which something is still said to hold."""
    live = store.runs.page(limit=1000, states=["queued", "running", "paused"])
    over = store.runs.page(limit=100, states=["completed", "cancelled"])
    runs: list[Run] = [row["run"] for row in live]
    runs += [run for row in over if (run := row["run"]).id in watched or (run.ended_at or 0.0) >= begun]
    return [run.id for run in runs]


def facts_of(store: StoreReader, run_id: str) -> RunFacts:
    """One moment of a run. Reads sums and the latest events, whatever the number of its tasks."""
    with store.snapshot():
        run = store.runs.get(run_id)
        now = store.now()
        over = run.state.is_over
        counts = store.tasks.counts(run_id)
        events = store.events.before(run_id, limit=_LOOK_BACK)  # newest first
        sums = store.tasks.sums(run_id)
        judged = {row["outcome"]: row["count"] for row in store.attempts.sums(run_id)}
        judged.pop(Outcome.CANCELLED, None)
        said = [] if over else store.events.workers(run_id)
        return RunFacts(
            now=now,
            name=run.name,
            state=run.state,
            cause=(run.reason or {}).get("cause"),
            message=str((run.reason or {}).get("message", "")),
            driven=over or store.runs.driver(run_id) is not None,
            since=_at(events, _SINCE) or run.started_at,
            waiting=counts[TaskState.QUEUED],
            tried=sum(row["count"] - row["untried"] for row in sums),
            retried=sum(row["count"] for row in sums if row["retried"]),
            tasks=", ".join(f"{count} {state}" for state, count in counts.items() if count),
            live=() if over else _live(store, run_id, now, events),
            durations=[] if over else store.tasks.durations(run_id),
            step_times=[] if over else step_times(events),
            stepped_at=next((event.at for event in events if _step(event) is not None), None),
            progressed_at=_at(events, _PROGRESS),
            finished_at=_at(events, frozenset({"attempt.finished"})),
            recent=_recent(events),
            judged=sum(judged.values()),
            failed=sum(judged.values()) - judged.get(Outcome.OK, 0),
            breaker=None if over else open_breaker(store, run),
            disk=full_disk(said),
            cost_usd=store.costs.total_usd(run_id),
            budget_usd=run.policy.budget_usd,
            lost=lost_hosts(said),
            quarantined=frozenset() if over else barred(store, run_id),
            unstarted=() if over else unstarted(events),
            pulling=pulling(said),
            unstored=None if over else unstored(store, run_id),
            ended_at=run.ended_at if over else None,
        )


def unstored(store: StoreReader, run_id: str) -> str | None:
    """Why files of the run cannot be stored; None where they can, as far as is known."""
    failed, reached = (store.events.last(run_id, kind) for kind in ("files.unreachable", "files.reached"))
    if failed is None or (reached is not None and reached.number > failed.number):
        return None
    return str(failed.data.get("error") or "")


def _live(store: StoreReader, run_id: str, now: float, events: list[Event]) -> tuple[LiveTask, ...]:
    heard: dict[str, float] = {}
    for event in events:
        if event.attempt is not None:
            heard.setdefault(event.attempt, event.at)
    return tuple(
        LiveTask(
            key=row["key"],
            elapsed_s=now - (row["ready_at"] or row["started_at"] or row["claimed_at"]),
            expected_s=store.tasks.at(run_id, row["task_number"]).expected_s,
            attempt=(attempt := f"{run_id}.{row['task_number']}.{row['number']}"),
            host=row["host"],
            quiet_s=now - heard.get(attempt, float(row["claimed_at"])),
            steps=row["step"] is not None,
        )
        for row in store.attempts.live(run_id)
    )


def _at(events: list[Event], types: frozenset[str]) -> float | None:
    return next((event.at for event in events if event.type in types), None)


def _step(event: Event) -> int | None:
    step = event.data.get("step") if event.type == "attempt.progressed" else None
    return step if isinstance(step, int) else None


def step_times(events: Iterable[Event]) -> list[float]:
    """How long steps took, from events with the newest first. One event may tell of several steps."""
    found: list[float] = []
    later: dict[str | None, tuple[int, float]] = {}
    for event in events:
        step = _step(event)
        if step is None:
            continue
        if event.attempt in later:
            next_step, at = later[event.attempt]
            if next_step > step:
                found.append((at - event.at) / (next_step - step))
        later[event.attempt] = (step, event.at)
    return found


def _recent(events: list[Event]) -> tuple[bool, ...]:
    """Of the latest judged attempts, oldest first, whether each gave a verdict; those that were cancelled are left out."""
    outcomes = [event.data.get("outcome") for event in events if event.type == "attempt.finished"]
    kept = [outcome == "ok" for outcome in outcomes if outcome != "cancelled"]
    return tuple(reversed(kept[:_RECENT]))


def lost_hosts(events: list[Event]) -> frozenset[str]:
    """Hosts that were given up and have not come back, from events with the oldest first."""
    lost: set[str] = set()
    for event in events:
        host = str(event.data.get("host") or "")
        if event.type == "worker.lost":
            lost.add(host)
        elif event.type == "worker.returned":
            lost.discard(host)
    return frozenset(lost)


def full_disk(events: Iterable[Event]) -> str | None:
    """Why nothing starts, from events with the oldest first. A new controller looks anew."""
    found: str | None = None
    for event in events:
        if event.type == "worker.disk_full":
            found = str(event.data.get("reason"))
        elif event.type in ("worker.disk_freed", "run.taken"):
            found = None
    return found


def unstarted(events: list[Event]) -> tuple[Unstarted, ...]:
    """Workers on which the latest attempt that tried to start did not do so in time, from events with the newest first.

    An environment that failed counts where the attempt never was ready, nor said anything.
    """
    begun = {event.attempt for event in events if event.type in _STARTS}
    found: dict[str, Unstarted] = {}
    settled: set[str] = set()
    for event in events:
        worker = _worker(event)
        if worker in settled or event.type not in ("attempt.readied", "attempt.finished"):
            continue
        kind = event.data.get("kind")
        is_late = kind == Kind.START_TIMEOUT or (kind == Kind.ENVIRONMENT_FAILED and event.attempt not in begun)
        if event.type == "attempt.finished" and event.data.get("outcome") == "cancelled":
            continue
        settled.add(worker)
        if event.type == "attempt.finished" and is_late:
            found[worker] = Unstarted(
                worker=worker,
                host=worker.rpartition("-")[0],
                key=event.task or "",
                evidence=str(event.data.get("evidence") or ""),
            )
    return tuple(found[worker] for worker in sorted(found))


def _worker(event: Event) -> str:
    return str(event.data.get("worker") or "")


def pulling(events: Iterable[Event]) -> tuple[tuple[str, float], ...]:
    """Hosts that pull an image and since when, from events with the oldest first."""
    since: dict[str, float] = {}
    for event in events:
        host = str(event.data.get("host") or "")
        if event.type == "worker.pulling":
            since.setdefault(host, event.at - float(event.data.get("took_s") or 0.0))
        elif event.type.startswith("worker.") and event.type != "worker.desired":
            since.pop(host, None)  # whatever is said of it next, it does not pull any more
    return tuple(sorted(since.items()))
