"""The summary of a run."""

from __future__ import annotations

from msgspec import field

from evalfleet.answers.base import Answer, Range
from evalfleet.answers.plans import Plan
from evalfleet.answers.studies import StudyFound
from evalfleet.answers.task_result import TaskResult
from evalfleet.model import RunState


class TaskCounts(Answer, frozen=True, kw_only=True):
    """How many tasks there are, and how many of them are in each state."""

    total: int
    done: int
    failed: int
    held: int
    cancelled: int
    queued: int
    running: int


class Intervals(Answer, frozen=True, kw_only=True):
    """95 % confidence intervals of both scores."""

    strict: Range | None
    valid: Range | None


class Scores(Answer, frozen=True, kw_only=True):
    strict: float | None
    valid: float | None
    coverage: float
    verdicts: int
    passed: int  # verdicts that are a success
    ci95: Intervals


class Reason(Answer, frozen=True, kw_only=True):
    """Why a run or a pool does not go on, and what to do about it."""

    cause: str
    message: str
    usd_per_hour: float | None = None  # what machines cost meanwhile


class Cost(Answer, frozen=True, kw_only=True):
    total_usd: float
    waste_usd: float
    waste: dict[str, float]  # by what became of the attempts: failed, lost, preempted, cancelled, unused
    idle_usd: float  # besides: workers between their attempts
    estimated_total_usd: float | None
    cost_per_task_usd: float | None
    hourly_rate_usd: float | None
    budget_usd: float | None


class AttemptCounts(Answer, frozen=True, kw_only=True):
    total: int
    by_outcome: dict[str, int]
    doubled: int = 0  # second copies of tasks on slow hosts


class FailureKind(Answer, frozen=True, kw_only=True):
    """Failed attempts of one kind, with the latest as an example."""

    kind: str
    blame: str
    attempts: int
    tasks: int
    key: str
    evidence: str


class FailureGroup(FailureKind, frozen=True, kw_only=True):
    """Failed attempts that share one message."""

    message: str


class CommonFailure(Answer, frozen=True, kw_only=True):
    """The message that most failed attempts share."""

    kind: str
    blame: str
    message: str
    attempts: int
    of: int
    tasks: int
    advice: str


class HeldTask(Answer, frozen=True, kw_only=True):
    key: str
    reason: str | None


class ScoredTasks(Answer, frozen=True, kw_only=True):
    n: int
    score: float | None


class RetryBias(Answer, frozen=True, kw_only=True):
    """Whether tasks that were retried score otherwise than the rest."""

    first_attempt: ScoredTasks
    retried: ScoredTasks


class DomainSummary(TaskCounts, frozen=True, kw_only=True):
    counted: int
    score_strict: float | None
    score_valid: float | None
    ci95_valid: Range | None
    avg_duration_s: float | None


class PassAt(Answer, frozen=True, kw_only=True):
    """The chance that one of k episodes succeeds."""

    k: int
    tasks: int
    score: float
    ci95: Range | None


class RepeatedTask(Answer, frozen=True, kw_only=True):
    task: str
    domain: str
    episodes: int
    counted: int
    successes: int
    score: float | None
    low: float | None
    high: float | None
    deviation: float | None
    pass_at: list[float | None]


class RepeatSummary(Answer, frozen=True, kw_only=True):
    """What several episodes per task tell."""

    tasks: int
    episodes: int
    most: int
    score: float | None
    ci95: Range | None
    deviation: float | None
    always: int
    sometimes: int
    never: int
    pass_at: list[PassAt]
    by_task: list[RepeatedTask] | None  # null where only sums were asked for


class RemovedPart(Answer, frozen=True, kw_only=True):
    """Files of a run that are not there any more: artifacts, logs (output and steps), or all that it had."""

    part: str
    removed_at: float
    files: int
    bytes: int
    reason: str


class Summary(Answer, frozen=True, kw_only=True):
    """A run at one moment."""

    run: str
    name: str
    state: RunState
    reason: Reason | None  # of a pause
    created_at: float
    started_at: float | None
    ended_at: float | None
    tasks: TaskCounts
    scores: Scores
    accept: float
    accepted: bool
    attempts: AttemptCounts
    failures: dict[str, int]
    failures_by_blame: dict[str, int]
    failure_kinds: list[FailureKind]
    failure_groups: list[FailureGroup]
    common_failure: CommonFailure | None
    held: list[HeldTask]
    cost: Cost
    retry_rate: float | None
    retry_bias: RetryBias
    avg_task_duration_s: float | None
    duration_s: float | None
    by_domain: dict[str, DomainSummary]
    repeats: RepeatSummary | None
    study: StudyFound | None  # of a study, which has no scores
    plan: Plan | None  # that the run follows, with what it took beside it
    results: list[TaskResult] | None  # null where only sums were asked for
    owner: str = ""  # the user whose run it is; "": not known
    project: str = ""
    tags: dict[str, str] = field(default_factory=dict[str, str])
    imported: bool = False  # made of the results of another program: its tasks cannot be run here
    pinned: bool = False  # nothing of it is removed by retention
    removed: tuple[RemovedPart, ...] = ()  # by retention
