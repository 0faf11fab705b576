"""One task and one attempt, with what the attempt did and left."""

from __future__ import annotations

from typing import Any, Literal

from evalfleet.answers.base import Answer
from evalfleet.answers.summary import TaskRow
from evalfleet.model import AttemptState, Failure, JsonObject, Outcome, Requests, TaskState, Verdict


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


class TaskFacts(TaskRow, frozen=True, kw_only=True):
    """One task with all its attempts."""

    spec: ShownSpec
    instruction: str | None
    not_before: float
    hold_asked: bool
    expected_s: float | None
    consumed: int
    lost: int
    attempt_list: list[AttemptRow]


class Artifact(Answer, frozen=True, kw_only=True):
    path: str
    size: int
    secret: bool


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
