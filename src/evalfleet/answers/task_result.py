"""The result of one task, as every front end shows it. `report.summary.task_result` fills it from the store's rows."""

from __future__ import annotations

from evalfleet.answers.base import Answer
from evalfleet.model import JsonObject, TaskState


class TaskFailure(Answer, frozen=True, kw_only=True):
    kind: str
    blame: str
    evidence: str | None


class TaskResult(Answer, frozen=True, kw_only=True):
    """One task: its verdict, or why it has none."""

    number: int
    key: str
    domain: str
    state: TaskState
    score: float | None  # of its verdict, 0 to 1
    success: bool | None
    steps: int | None
    metrics: JsonObject | None
    duration_s: float | None  # of the attempt that decided it
    attempts: int
    worker: str | None
    failure: TaskFailure | None  # where it has no verdict
    reason: str | None  # why it failed or is held
