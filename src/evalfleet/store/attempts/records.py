"""What callers tell the store about attempts, and what it tells them."""

from __future__ import annotations

from msgspec import Struct

from evalfleet.core.shares.quota import ShareRule
from evalfleet.model import (
    Attempt,
    Device,
    Failure,
    JsonObject,
    Outcome,
    Requests,
    Task,
    TaskState,
    Verdict,
)


class Claim(Struct, frozen=True, kw_only=True):
    """A task and the worker that shall run it."""

    task_number: int
    worker: str
    host: str
    token: str
    lease_s: float
    requests: Requests
    host_memory_mb: int | None = None  # None: the host's memory is not limited
    # Attempts of other runs that the host is known to run, even where their lease has expired.
    others: frozenset[str] = frozenset()
    devices: tuple[Device, ...] = ()  # the GPUs that the attempt shall have; refused where one is held
    price_usd_per_hour: float = 0.0  # of the worker
    committed_usd: float = 0.0  # what the attempt may cost, as far as it is known
    rules: tuple[ShareRule, ...] = ()  # quotas of the configuration, beside those of the store
    copy_of: int | None = None  # the number of a live attempt of the same task that this one is made beside


class Claimed(Struct, frozen=True, kw_only=True):
    task: Task
    attempt: Attempt


class Progress(Struct, frozen=True, kw_only=True):
    """New facts about a live attempt, up to the runner's event `last_event`."""

    attempt: Attempt
    last_event: int
    state: str | None = None  # starting or running
    started_at: float | None = None
    ready_at: float | None = None
    step: int | None = None
    reported_usd: float = 0.0
    lines: tuple[JsonObject, ...] = ()


class Finish(Struct, frozen=True, kw_only=True):
    """How an attempt ended, and what becomes of its task.

    With a verdict the task is done. With a failure it goes to `next_state`: queued (not before `not_before`), failed,
    held or cancelled.
    """

    attempt: Attempt
    outcome: Outcome
    ended_at: float
    duration_s: float
    started_at: float | None
    ready_at: float | None
    cost_usd: float
    reported_usd: float
    last_event: int
    end: JsonObject
    judge_version: int
    verdict: Verdict | None = None
    failure: Failure | None = None
    next_state: TaskState | None = None
    not_before: float = 0.0
    reason: str | None = None


class Finished(Struct, frozen=True, kw_only=True):
    task: Task
    attempt: Attempt
    counts: bool  # False: the task had a verdict already, or is cancelled; this attempt is evidence only
    siblings: tuple[Attempt, ...]  # live attempts of the same task, to be cancelled when this one brought the verdict


class Judged(Struct, frozen=True, kw_only=True):
    """One judged attempt, as attribution needs it."""

    run_id: str
    key: str  # of its task
    task_number: int
    number: int
    host: str
    worker: str
    executable: str
    outcome: Outcome
    failure: Failure | None
    ended_at: float
    duration_s: float
    claimed_at: float
    judged_at: float

    @property
    def attempt_id(self) -> str:
        return f"{self.run_id}.{self.task_number}.{self.number}"
