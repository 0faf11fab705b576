"""Runs: lists of them, one with all that it does now, and what is drawn of it."""

from __future__ import annotations

from typing import Literal

from evalfleet.answers.alerts import Alert, Severity
from evalfleet.answers.base import Answer, Range
from evalfleet.answers.studies import StudyFound
from evalfleet.answers.summary import FailureKind, Reason, Scores, Summary, TaskCounts
from evalfleet.answers.task_result import TaskResult
from evalfleet.model import JsonObject, Policy, RunState, TaskState

Look = Literal["pass", "wrong", "own", "infra", "off", "live"]
"""How an attempt is coloured."""

Bar = tuple[int, int, float, float | None, Look, str]
"""An attempt of a lane: task, attempt, start, end, look, key."""


class Problem(Answer, frozen=True, kw_only=True):
    """What a person should look at."""

    severity: Severity
    text: str


class RunRow(Answer, frozen=True, kw_only=True):
    """A run as one row of a list."""

    run: str
    name: str
    state: RunState
    reason: Reason | None
    driven: bool
    tasks: TaskCounts
    scores: Scores
    study: StudyFound | None  # of a study, which has no scores
    cost_usd: float
    budget_usd: float | None
    workers: int
    pool: str | None
    distribution: str
    created_at: float
    started_at: float | None
    ended_at: float | None
    owner: str  # "": not known
    project: str
    tags: dict[str, str]


class RunList(Answer, frozen=True, kw_only=True):
    """As `evalfleet status --json` prints it."""

    runs: list[RunRow]


class WatchedRun(RunRow, frozen=True, kw_only=True):
    """A row of the page's list."""

    eta_s: Range | None
    problems: list[Problem]


class RunPage(Answer, frozen=True, kw_only=True):
    runs: list[WatchedRun]
    next: str | None


class Worker(Answer, frozen=True, kw_only=True):
    name: str
    state: str
    task: str | None
    attempt: int | None
    step: int | None
    elapsed_s: float | None


class WatchedWorker(Worker, frozen=True, kw_only=True):
    host: str
    task_number: int | None
    starting: bool
    assigned: int
    completed: int
    screen: bool


class RunStatus(Summary, frozen=True, kw_only=True):
    """As `evalfleet status RUN --json` prints it."""

    driven: bool
    waits: str | None  # for what, of a run that could start more
    workers: list[Worker]


class RunFacts(Summary, frozen=True, kw_only=True):
    """One run: its summary, and what it does now."""

    covers: str | None  # which part of the tasks the scores cover, where that is not all
    driven: bool
    driver: str | None
    cancelling: bool
    workers: list[WatchedWorker]
    eta_s: Range | None
    breaker: str | None
    waits: str | None
    policy: Policy
    problems: list[Problem]
    alerts: list[Alert]
    quarantined: list[str]
    folder: str


class TaskPage(Answer, frozen=True, kw_only=True):
    tasks: list[TaskResult]
    next: str | None


class TaskList(Answer, frozen=True, kw_only=True):
    """As `evalfleet tasks --json` prints it."""

    run: str
    tasks: list[TaskResult]


class TaskGrid(Answer, frozen=True, kw_only=True):
    number: list[int]
    key: list[str]
    domain: list[str]
    state: list[TaskState]
    score: list[float | None]
    success: list[bool | None]
    attempts: list[int]
    duration_s: list[float | None]
    kind: list[str | None]
    blame: list[str | None]
    worker: list[str | None]


class Lane(Answer, frozen=True, kw_only=True):
    worker: str
    host: str
    bars: list[Bar]


class Lanes(Answer, frozen=True, kw_only=True):
    """The attempts of a run by worker."""

    now: float
    started_at: float | None
    lanes: list[Lane]


class ScoreSeries(Answer, frozen=True, kw_only=True):
    """Scores and cost over time, by columns."""

    at: list[float]
    decided: list[int]
    done: list[int]
    strict: list[float | None]
    valid: list[float | None]
    cost_usd: list[float]
    waste_usd: list[float]


class HostSeries(Answer, frozen=True, kw_only=True):
    """How busy a host was, by columns."""

    host: str
    at: list[float]
    cpu: list[float | None]
    memory: list[float | None]
    disk: list[float | None]
    net_in_bps: list[float | None]
    net_out_bps: list[float | None]
    gpu: list[float | None]
    disk_read_bps: list[float | None]  # only its cloud tells
    disk_write_bps: list[float | None]
    from_cloud: list[bool]  # whether its cloud measured it, because the host itself was not asked or did not answer


class HostSeriesList(Answer, frozen=True, kw_only=True):
    run: str
    hosts: list[HostSeries]


class FailedAttempt(Answer, frozen=True, kw_only=True):
    task: int
    key: str
    number: int
    worker: str
    kind: str
    blame: str
    evidence: str | None
    ended_at: float


class FailurePage(Answer, frozen=True, kw_only=True):
    kinds: list[FailureKind]
    attempts: list[FailedAttempt]
    next: str | None


class QueuedTask(Answer, frozen=True, kw_only=True):
    number: int
    key: str
    domain: str
    expected_s: float | None
    attempts: int
    not_before: float


class Queue(Answer, frozen=True, kw_only=True):
    due: list[QueuedTask]
    waiting: int
    next_due_at: float | None


class EventRow(Answer, frozen=True, kw_only=True):
    number: int
    run: str
    at: float
    type: str
    task: str | None
    attempt: str | None
    data: JsonObject


class EventPage(Answer, frozen=True, kw_only=True):
    events: list[EventRow]
    next: str | None
