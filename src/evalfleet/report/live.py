"""What a run is doing at this moment, for views that are drawn again and again."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from msgspec import Struct

from evalfleet.core.statistics import scores as stats
from evalfleet.model import Blame, Event, JsonObject, Kind, Outcome, Run, RunState, TaskState, WorkerState
from evalfleet.report.run_row import open_breaker
from evalfleet.store.reader import StoreReader

FAILURES = 12
_BEGINS = {
    "worker.suspected": WorkerState.SUSPECT,
    "worker.lost": WorkerState.LOST,
    "worker.draining": WorkerState.DRAINING,
    "worker.quarantined": WorkerState.QUARANTINED,
    "worker.canary_failed": WorkerState.QUARANTINED,
    "worker.left": WorkerState.GONE,
}
_SILENT = {WorkerState.SUSPECT, WorkerState.LOST}
# The gravest comes first.
_ORDER = (
    WorkerState.GONE,
    WorkerState.LOST,
    WorkerState.DRAINING,
    WorkerState.QUARANTINED,
    WorkerState.SUSPECT,
)
# Of a worker without a task, in the words of `parallel_live.json`.
_STATUS = {
    WorkerState.READY: "ready",
    WorkerState.BUSY: "running",
    WorkerState.SUSPECT: "failed",
    WorkerState.QUARANTINED: "failed",
    WorkerState.DRAINING: "completed",
    WorkerState.LOST: "failed",
    WorkerState.GONE: "deleted",
}


class WorkerLine(Struct, frozen=True, kw_only=True):
    """One worker and what it does. A worker that has nothing to do is `ready`, with everything else None."""

    name: str
    state: WorkerState
    assigned: int = 0  # attempts that it was given
    completed: int = 0  # those of them that gave a verdict
    key: str | None = None
    attempt: int | None = None
    step: int | None = None
    elapsed_s: float | None = None
    standing: WorkerState | None = None  # of its host, where that is not just ready or busy
    starting: bool = False  # its process has not said that it runs


class FailureLine(Struct, frozen=True, kw_only=True):
    key: str
    kind: Kind
    blame: Blame
    evidence: str
    attempt: int
    at: float


class LiveState(Struct, frozen=True, kw_only=True):
    """One moment of a run; all of it was read in one snapshot."""

    run: Run
    now: float
    counts: Mapping[TaskState, int]
    passed: int  # tasks whose verdict is a success
    retried: int  # tasks with more than one attempt
    failed_attempts: int
    scores: stats.Scores
    workers: tuple[WorkerLine, ...]
    failures: tuple[FailureLine, ...]  # newest first
    cost_usd: float
    waste_usd: float
    eta: stats.Interval | None
    breaker: str | None  # why it is open; None while it is closed
    waits: str | None = None  # who has the slots that it waits for; None: it waits for none
    pool_created_at: float | None = None  # None: it runs on this machine, or the pool is gone

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    @property
    def settled(self) -> int:
        """Tasks that stay as they are unless a person acts."""
        return self.total - self.counts[TaskState.QUEUED] - self.counts[TaskState.RUNNING]

    @property
    def elapsed_s(self) -> float | None:
        if self.run.started_at is None:
            return None
        return max(0.0, (self.run.ended_at or self.now) - self.run.started_at)


def live_state(store: StoreReader, run: Run, *, failures: int = FAILURES) -> LiveState:
    """Read one moment of a run. Raises NotFound where the run is gone."""
    with store.snapshot():
        run = store.runs.get(run.id)
        now = store.now()
        sums = store.tasks.sums(run.id)
        counts = {state: sum(row["count"] for row in sums if row["state"] == state) for state in TaskState}
        lines = _workers(store, run, now)
        attempts = store.attempts.sums(run.id)
        return LiveState(
            run=run,
            now=now,
            counts=counts,
            passed=int(sum(row["successes"] for row in sums)),
            retried=sum(row["count"] for row in sums if row["retried"]),
            failed_attempts=sum(row["count"] for row in attempts if row["outcome"] not in (None, Outcome.OK)),
            scores=stats.scores(
                total=sum(counts.values()),
                verdicts=counts[TaskState.DONE],
                score_sum=sum(row["score"] for row in sums),
                failed=counts[TaskState.FAILED],
            ),
            workers=lines,
            failures=tuple(_failure(row) for row in store.attempts.last_failures(run.id, failures)),
            cost_usd=store.costs.total_usd(run.id),
            waste_usd=store.costs.waste_usd(run.id),
            eta=_eta(store, run, counts, lines),
            breaker=open_breaker(store, run),
            waits=awaited(store.events.workers(run.id)) if run.state is RunState.RUNNING else None,
            pool_created_at=_pool_created_at(store, run),
        )


def _pool_created_at(store: StoreReader, run: Run) -> float | None:
    if run.policy.pool is None:
        return None
    return next((pool.created_at for pool in store.pools.all() if pool.name == run.policy.pool), None)


def workers(store: StoreReader, run: Run) -> tuple[WorkerLine, ...]:
    """The workers alone: much less to read."""
    with store.snapshot():
        run = store.runs.get(run.id)
        return _workers(store, run, store.now())


def _workers(store: StoreReader, run: Run, now: float) -> tuple[WorkerLine, ...]:
    """One line per worker that was ever used and whose host is there, by name, and per slot that nothing has run on yet."""
    busy = {row["worker"]: row for row in store.attempts.live(run.id)}
    hosts = standings(store.events.workers(run.id)) if run.state is RunState.RUNNING else {}
    sums = store.attempts.worker_sums(run.id)
    standing = {row["worker"]: hosts.get(row["worker"].rpartition("-")[0]) for row in sums}
    shares = [row for row in sums if row["worker"] in busy or standing[row["worker"]] is not WorkerState.GONE]
    lines = [
        _worker(row, busy.get(row["worker"]), standing[row["worker"]], now)
        for row in sorted(shares, key=lambda row: natural(row["worker"]))
        # A slot of an earlier, wider drive of this run that is no longer in use says nothing about now.
        if row["worker"] in busy or len(shares) <= run.policy.workers
    ]
    unused = run.policy.workers - len(lines) if run.state is RunState.RUNNING else 0
    return (*lines, *(WorkerLine(name="", state=WorkerState.READY) for _ in range(unused)))


def _worker(share: dict[str, Any], row: dict[str, Any] | None, standing: WorkerState | None, now: float) -> WorkerLine:
    name, assigned, completed = share["worker"], share["assigned"], share["completed"]
    if row is None:
        return WorkerLine(name=name, state=WorkerState.READY, assigned=assigned, completed=completed, standing=standing)
    return WorkerLine(
        name=name,
        state=WorkerState.BUSY,
        assigned=assigned,
        completed=completed,
        key=row["key"],
        attempt=row["number"],
        step=row["step"],
        elapsed_s=max(0.0, now - (row["ready_at"] or row["started_at"] or row["claimed_at"])),
        starting=row["state"] != "running",
        standing=standing,
    )


def awaited(events: Iterable[Event]) -> str | None:
    """Which runs hold the slots that the run waits for, or that the disk is almost full; None: it waits for neither.

    Args:
        events: as for `standings`.
    """
    waits: str | None = None
    for event in events:
        if event.type in ("worker.awaited", "worker.disk_full"):
            waits = str(event.data.get("reason"))
        elif event.type in ("worker.granted", "worker.disk_freed", "run.taken"):
            waits = None
    return waits


def waiting(waits: str) -> str:
    """The same for a person. A share, a quota and a full disk name themselves; else it is who has the slots."""
    return f"waits: {waits}" if waits.startswith(("your ", "the quota ", "the disk ")) else f"waits for a slot: {waits}"


def standings(events: Iterable[Event]) -> dict[str, WorkerState]:
    """The hosts that are not just ready or busy, and what they are.

    Args:
        events: those of workers, and of controllers that took the run, in their order. A new controller sees for itself.
    """
    found: dict[str, set[WorkerState]] = {}
    for event in events:
        if event.type == "run.taken":
            found.clear()
            continue
        if "host" not in event.data:
            continue  # about one worker, by an operator
        states = found.setdefault(str(event.data["host"]), set())
        if event.type in _BEGINS:
            states.add(_BEGINS[event.type])
        elif event.type == "worker.joined":
            states.clear()
        elif event.type == "worker.returned":
            states -= {event.data["from"]} if "from" in event.data else _SILENT
    return {host: next(state for state in _ORDER if state in states) for host, states in found.items() if states}


def natural(name: str) -> list[tuple[int, str]]:
    """Key that sorts local-2 before local-10."""
    digits, parts = "", list[tuple[int, str]]()
    for char in name:
        if char.isascii() and char.isdigit():
            digits += char
            continue
        parts += [(int(digits), "")] if digits else []
        parts.append((-1, char))
        digits = ""
    return parts + ([(int(digits), "")] if digits else [])


def _failure(row: dict[str, Any]) -> FailureLine:
    return FailureLine(
        key=row["key"],
        kind=Kind(row["kind"]),
        blame=Blame(row["blame"]),
        evidence=row["evidence"] or "",
        attempt=row["number"],
        at=row["ended_at"],
    )


def _eta(
    store: StoreReader, run: Run, counts: Mapping[TaskState, int], workers: tuple[WorkerLine, ...]
) -> stats.Interval | None:
    if run.state is not RunState.RUNNING:
        return None
    elapsed = [line.elapsed_s for line in workers if line.elapsed_s is not None]
    return stats.eta(
        store.tasks.durations(run.id), waiting=counts[TaskState.QUEUED], elapsed=elapsed, workers=run.policy.workers
    )


def parallel_live(live: LiveState) -> JsonObject:
    """Return the object of `parallel_live.json`, for tools that watch a file.

    There the words follow the verdict's success: `completed_tasks` have a verdict, `failed_tasks` are those of them
    that were no success, and `errors` are tasks that ended without a verdict (failed, held or cancelled).
    """
    verdicts = live.counts[TaskState.DONE]
    slots = Counter(line.name.rpartition("-")[0] for line in live.workers)
    return {
        "status": str(live.run.state),
        "run": live.run.id,
        "pool_id": file_id(live.pool_created_at or live.run.created_at),
        "started_at": None if live.run.started_at is None else file_time(live.run.started_at),
        "total_tasks": live.total,
        "completed_tasks": verdicts,
        "failed_tasks": verdicts - live.passed,
        "errors": live.settled - verdicts,
        "workers": [
            {
                "name": _machine(line.name, slots),
                "status": "running" if line.key is not None else _STATUS[line.standing or line.state],
                "assigned": line.assigned,
                "completed": line.completed,
                "current_task": line.key,
            }
            for line in live.workers
            if line.name
        ],
    }


def _machine(worker: str, slots: Counter[str]) -> str:
    """The machine's own name where it has one worker."""
    machine = worker.rpartition("-")[0]
    return machine if machine and slots[machine] == 1 else worker


def file_id(at: float) -> str:
    """As these files name a pool: by the moment when it was made."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y%m%d_%H%M%S")


def file_time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def write_live(path: Path, live: JsonObject) -> None:
    """Replace the file at once, so that a reader never sees half of it. It may be lost with the power; it is rewritten.

    Writes nothing where the run's folder is not there: the home was moved, and nothing may appear in its former place.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    with suppress(FileNotFoundError):
        partial.write_text(json.dumps(live, indent=1) + "\n", "utf-8")
        partial.replace(path)
