"""How a task stands."""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field

from evalfleet.model import Failure, TaskState
from evalfleet.model import Task as StoredTask


class TaskResult(Struct, frozen=True, kw_only=True):
    """How one task stands."""

    key: str
    domain: str
    state: TaskState
    score: float | None  # of its verdict, 0 to 1
    success: bool | None
    steps: int | None
    metrics: dict[str, Any] = field(default_factory=dict[str, Any])
    duration_s: float | None  # of the attempt that decided it
    attempts: int
    worker: str | None
    failure: Failure | None  # kind, blame and evidence, where it has no verdict
    reason: str | None  # why it failed or is held


def result_of(task: StoredTask) -> TaskResult:
    """Return what the store knows of a task, for people."""
    verdict = task.verdict
    return TaskResult(
        key=task.key,
        domain=task.spec.domain,
        state=task.state,
        score=verdict.score if verdict else None,
        success=verdict.success if verdict else None,
        steps=verdict.steps if verdict else None,
        metrics=verdict.metrics if verdict else {},
        duration_s=task.duration_s,
        attempts=task.attempts,
        worker=task.worker,
        failure=None if verdict else task.failure,
        reason=task.reason,
    )
