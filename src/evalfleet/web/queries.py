"""What the API tells of runs, read from the store. The same words as `--json` of the commands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from evalfleet.answers import runs as answers
from evalfleet.answers.alerts import Alert
from evalfleet.answers.comparison import Comparison
from evalfleet.core.hosts.load import Sample, bounded
from evalfleet.daemon.alerts.state import firing_of
from evalfleet.engine.requests import barred
from evalfleet.errors import NotFound
from evalfleet.model import Run, RunFilter, RunState, TaskState
from evalfleet.report.compare import compare as compared
from evalfleet.report.live import WorkerLine, live_state, natural
from evalfleet.report.repeats import bounds
from evalfleet.report.run_row import open_breaker, outlook, problems, run_row
from evalfleet.report.summary import covered, summarise, task_result
from evalfleet.report.timeline import look_of
from evalfleet.store.reader import StoreReader

_POINTS = 500
_PARTS = ("cpu", "memory", "disk", "net_in_bps", "net_out_bps", "gpu", "disk_read_bps", "disk_write_bps")
_MOST_HOSTS = 200


class Page(Struct, frozen=True, kw_only=True):
    """Which part of a list is wanted."""

    limit: int
    cursor: str | None


def runs(store: StoreReader, page: Page, wanted: RunFilter) -> answers.RunPage:
    before = int(page.cursor) if page.cursor else None
    with store.snapshot():
        found = store.runs.page(before=before, limit=page.limit, **asdict(wanted))
        firing = _firing(store)
        rows = [_watched(store, one["run"], firing) for one in found]
    return answers.RunPage(runs=rows, next=_next(found, page, "place"))


def _firing(store: StoreReader) -> list[Alert]:
    return firing_of(store.events.alerts())


def _watched(store: StoreReader, run: Run, firing: Sequence[Alert]) -> answers.WatchedRun:
    row = run_row(store, run)
    alerts = [alert for alert in firing if alert.run == run.id]
    breaker = open_breaker(store, run) if run.state is RunState.RUNNING else None
    return answers.WatchedRun.copy_of(
        row, eta_s=outlook(store, run, row.tasks.queued), problems=problems(row, breaker, alerts)
    )


def run(store: StoreReader, text: str) -> answers.RunFacts:
    with store.snapshot():
        found = store.runs.find(text)
        over = found.state.is_over
        driver = None if over else store.runs.driver(found.id)
        live = live_state(store, found, failures=0)
        numbers = {row["key"]: row["task_number"] for row in store.attempts.live(found.id)}
        out = barred(store, found.id)
        alerts = [alert for alert in _firing(store) if alert.run == found.id]
        summary = summarise(store, found, results=False)
        return answers.RunFacts.copy_of(
            summary,
            found,
            covers=covered(summary),
            driven=driver is not None,
            driver=driver,
            workers=[] if over else [_worker(one, numbers, out) for one in live.workers],
            eta_s=bounds(live.eta),
            breaker=live.breaker,
            waits=live.waits,
            problems=problems(run_row(store, found), live.breaker if not over else None, alerts),
            alerts=alerts,
            quarantined=sorted(out),
        )


def _worker(one: WorkerLine, numbers: dict[str, int], out: frozenset[str]) -> answers.WatchedWorker:
    host = one.name.rpartition("-")[0]
    state = "quarantined" if one.key is None and (one.name in out or host in out) else str(one.state)
    return answers.WatchedWorker.copy_of(
        one,
        host=host,
        state=state,
        task=one.key,
        task_number=numbers.get(one.key) if one.key is not None else None,
        screen=one.key is not None and (one.step or 0) > 0,
    )


class Choice(Struct, frozen=True, kw_only=True):
    """Which tasks of a run are wanted."""

    states: tuple[str, ...] = ()
    domain: str | None = None
    search: str | None = None
    key: str | None = None


def tasks(store: StoreReader, text: str, page: Page, choice: Choice) -> answers.TaskPage:
    found = store.runs.find(text)
    rows = store.tasks.page(
        found.id,
        after=int(page.cursor or 0),
        limit=page.limit,
        states=choice.states,
        domain=choice.domain,
        key=choice.key,
        search=choice.search,
    )
    return answers.TaskPage(tasks=[task_result(row) for row in rows], next=_next(rows, page, "number"))


def grid(store: StoreReader, text: str) -> answers.TaskGrid:
    """All tasks by columns: for ten thousand of them names would be most of the answer."""
    found = store.runs.find(text)
    names = ("number", "key", "domain", "state", "score", "attempts", "duration_s", "kind", "blame", "worker")
    columns: dict[str, list[Any]] = {name: [] for name in (*names, "success")}
    with store.snapshot():
        for row in store.tasks.result_rows(found.id):
            for name in names:
                columns[name].append(row[name])
            columns["success"].append(None if row["success"] is None else bool(row["success"]))
    return answers.TaskGrid(**columns)


def lanes(store: StoreReader, text: str, since: float) -> answers.Lanes:
    found = store.runs.find(text)
    by_worker: dict[str, list[answers.Bar]] = {}
    hosts: dict[str, str] = {}
    with store.snapshot():
        for row in store.attempts.lanes(found.id, since):
            start = row["started_at"] or row["claimed_at"]
            bar = (row["task_number"], row["number"], start, row["ended_at"], look_of(row), row["key"])
            by_worker.setdefault(row["worker"], []).append(bar)
            hosts[row["worker"]] = row["host"]
        now = store.now()
    told = [
        answers.Lane(worker=worker, host=hosts[worker], bars=by_worker[worker])
        for worker in sorted(by_worker, key=natural)
    ]
    return answers.Lanes(now=now, started_at=found.started_at, lanes=told)


def series(store: StoreReader, text: str) -> answers.ScoreSeries:
    """Scores and cost over time, attempt by attempt, thinned to the number of points that a chart can show."""
    found = store.runs.find(text)
    with store.snapshot():
        total = sum(store.tasks.counts(found.id).values())
        ended = sorted(
            (row for row in store.attempts.lanes(found.id) if row["ended_at"]), key=lambda row: row["ended_at"]
        )
        failed = {row["number"] for row in store.tasks.page(found.id, limit=1 << 31, states=["failed"])}
        last = {row["task_number"]: row["number"] for row in ended}
    names = ("at", "decided", "done", "strict", "valid", "cost_usd", "waste_usd")
    points: list[tuple[Any, ...]] = []
    verdicts, lost, score, cost, waste = 0, 0, 0.0, 0.0, 0.0
    for row in ended:
        cost += row["cost_usd"]
        if row["outcome"] == "ok":
            verdicts, score = verdicts + 1, score + row["score"]
        else:
            waste += row["cost_usd"]
            lost += row["task_number"] in failed and last[row["task_number"]] == row["number"]
        counted = verdicts + lost
        valid = score / counted if counted else None
        points.append((row["ended_at"], counted, verdicts, score / total if total else None, valid, cost, waste))
    kept = points
    if len(points) > _POINTS:
        kept = [points[i * len(points) // _POINTS] for i in range(_POINTS)] + points[-1:]
    return answers.ScoreSeries(**{name: [point[i] for point in kept] for i, name in enumerate(names)})


def host_series(store: StoreReader, text: str, host: str | None, since: float) -> answers.HostSeriesList:
    """`hosts`: of each its samples by columns, from the run's start (or `since`) to its end.

    Raises NotFound.
    """
    with store.snapshot():
        run = store.runs.find(text)
        hosts = store.attempts.hosts(run.id)
        if host is not None and host not in hosts:
            raise NotFound(f"run {run.id} used no host {host!r}; it used: {', '.join(hosts[:20]) or 'none'}")
        ends = store.now() if run.ended_at is None else run.ended_at
        begins = min(ends, max(since, run.started_at or run.created_at))
        chosen = hosts[:_MOST_HOSTS] if host is None else [host]
        rows = [(name, bounded(store.loads.of_host(name, begins, ends))) for name in chosen]
    return answers.HostSeriesList(run=run.id, hosts=[_columns(name, samples) for name, samples in rows])


def _columns(host: str, samples: list[Sample]) -> answers.HostSeries:
    columns = {part: [_rounded(getattr(sample.load, part)) for sample in samples] for part in _PARTS}
    moments, clouds = [round(sample.at, 1) for sample in samples], [sample.from_cloud for sample in samples]
    return answers.HostSeries(host=host, at=moments, from_cloud=clouds, **columns)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def failures(store: StoreReader, text: str, page: Page, kind: str | None, blame: str | None) -> answers.FailurePage:
    found = store.runs.find(text)
    before = _failure_cursor(page.cursor)
    with store.snapshot():
        kinds = summarise(store, found, results=False).failure_kinds
        rows = store.attempts.failed_page(found.id, kind=kind, blame=blame, before=before, limit=page.limit)
    attempts = [answers.FailedAttempt(task=row.pop("task_number"), **row) for row in map(dict[str, Any], rows)]
    full = len(rows) == page.limit
    cursor = f"{rows[-1]['ended_at']!r},{rows[-1]['task_number']},{rows[-1]['number']}" if full and rows else None
    return answers.FailurePage(kinds=kinds, attempts=attempts, next=cursor)


def _failure_cursor(cursor: str | None) -> tuple[float, int, int] | None:
    if cursor is None:
        return None
    at, task, number = cursor.split(",")
    return float(at), int(task), int(number)


def queue(store: StoreReader, text: str, limit: int) -> answers.Queue:
    found = store.runs.find(text)
    with store.snapshot():
        due = store.tasks.candidates(found.id, limit)
        counts = store.tasks.counts(found.id)
        next_due = store.tasks.next_due(found.id)
    tasks = [answers.QueuedTask.copy_of(task, domain=task.spec.domain) for task in due]
    return answers.Queue(due=tasks, waiting=counts[TaskState.QUEUED], next_due_at=next_due)


def compare(store: StoreReader, a: str, b: str, *, allow_different: bool = False) -> Comparison:
    return compared(store, store.runs.find(a), store.runs.find(b), allow_different=allow_different)


def _next(rows: Sequence[dict[str, Any]], page: Page, name: str) -> str | None:
    return str(rows[-1][name]) if len(rows) == page.limit and rows else None
