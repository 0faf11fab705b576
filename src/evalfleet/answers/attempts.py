"""One task and one attempt, with what the attempt did and left."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import field

from evalfleet.answers.base import Answer
from evalfleet.answers.task_result import TaskResult
from evalfleet.model import AttemptState, Blame, Failure, JsonObject, Kind, Outcome, Requests, TaskState, Verdict


class Frame(Answer, frozen=True, kw_only=True):
    """One step, or the end. Text is printable, and cut."""

    step: int | None  # None: what stands between steps, or the end
    at_s: float | None  # since the attempt began
    action: str
    note: str
    tokens: str
    cost_usd: float
    picture: str | None  # name of a file in the artifacts
    points: tuple[tuple[float, float], ...]  # where the pointer acted, in pixels of the picture


class Film(Answer, frozen=True, kw_only=True):
    goal: str
    frames: tuple[Frame, ...]
    cut: int  # frames that are not here, because there are too many


class AttemptRow(Answer, frozen=True, kw_only=True):
    id: str
    task: int
    number: int
    state: AttemptState
    outcome: Outcome | None
    host: str
    worker: str
    claimed_at: float
    started_at: float | None
    ready_at: float | None
    ended_at: float | None
    duration_s: float | None
    step: int | None
    cost_usd: float
    reported_usd: float
    verdict: Verdict | None
    failure: Failure | None
    live: bool


class ShownSpec(Answer, frozen=True, kw_only=True):
    """What was submitted. Values of variables that look like secrets are hidden."""

    command: tuple[str, ...]
    env: dict[str, str]
    secrets: tuple[str, ...]
    payload: Any
    timeout_s: float | None
    stall_s: float | None
    start_timeout_s: float | None
    requests: Requests
    max_cost_usd: float | None
    gpu_env: str


class TaskFacts(TaskResult, frozen=True, kw_only=True):
    spec: ShownSpec
    instruction: str | None
    not_before: float
    hold_asked: bool
    expected_s: float | None
    consumed: int
    lost: int
    attempt_list: list[AttemptRow]


class ArtifactFile(Answer, frozen=True, kw_only=True):
    """A file that an attempt left."""

    path: str  # below the folder of its artifacts
    size: int


class ArtifactList(Answer, frozen=True, kw_only=True):
    run: str
    key: str
    attempt: int
    artifacts: list[ArtifactFile]


class Artifact(ArtifactFile, frozen=True, kw_only=True):
    secret: bool


class AttemptLog(Answer, frozen=True, kw_only=True):
    """What an attempt wrote, as `evalfleet logs --json` prints it."""

    run: str
    key: str
    attempt: int
    state: AttemptState
    outcome: Outcome | None
    worker: str
    folder: str
    stdout: str | None  # None: not asked for
    stderr: str | None


class LogSizes(Answer, frozen=True, kw_only=True):
    stdout: int
    stderr: int


class DesktopFacts(Answer, frozen=True, kw_only=True):
    vnc: bool
    screenshot: bool


class AttemptFacts(AttemptRow, frozen=True, kw_only=True):
    """One attempt with its film and files."""

    key: str
    run: str
    task_state: TaskState
    end: JsonObject | None
    film: Film | None
    artifacts: list[Artifact]
    logs: LogSizes
    desktop: DesktopFacts
    problem: str | None  # why what lies on its host cannot be shown now


class LogPiece(Answer, frozen=True, kw_only=True):
    stream: Literal["stdout", "stderr"]
    offset: int
    next: int
    size: int
    live: bool
    text: str


class Judgement(Answer, frozen=True, kw_only=True):
    """What an attempt was judged: a verdict with score and success, or a failure with kind, blame and evidence."""

    outcome: Outcome | None
    score: float | None = None
    success: bool | None = None
    kind: Kind | None = None
    blame: Blame | None = None
    evidence: str | None = None


class TaskMove(Answer, frozen=True, kw_only=True):
    from_: TaskState = field(name="from")
    to: TaskState


class JudgedAttempt(Answer, frozen=True, kw_only=True):
    """An attempt that is judged otherwise today."""

    key: str
    attempt: int
    from_: Judgement = field(name="from")
    to: Judgement
    task: TaskMove | None  # where the state of its task changes
    applied: bool


class JudgedRun(Answer, frozen=True, kw_only=True):
    """As `evalfleet judge --json` prints it."""

    run: str
    judge_version: int
    dry_run: bool
    changes: list[JudgedAttempt]
    tasks: dict[str, int]  # by state, after the changes; and `total`
