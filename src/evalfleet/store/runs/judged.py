"""What became of an attempt, for whoever asks whose fault it was."""

from __future__ import annotations

from msgspec import Struct

from evalfleet.model import Failure, Outcome


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
