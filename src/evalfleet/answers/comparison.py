"""Two runs side by side."""

from __future__ import annotations

from typing import Any, Literal

from evalfleet.answers.base import Answer, Range
from evalfleet.model import RunState, TaskState


class SideScores(Answer, frozen=True, kw_only=True):
    valid: float | None
    strict: float | None
    coverage: float


class SideCost(Answer, frozen=True, kw_only=True):
    total_usd: float
    waste_usd: float
    cost_per_task_usd: float | None


class Side(Answer, frozen=True, kw_only=True):
    """One of the two runs."""

    run: str
    name: str
    state: RunState
    tasks: int
    unfinished: int
    scores: SideScores
    paired_score: float | None
    successes: int
    avg_task_duration_s: float | None
    duration_s: float | None
    cost: SideCost


class PairCounts(Answer, frozen=True, kw_only=True):
    common: int
    paired: int
    distinct: int
    left_out: int
    different: int
    only_a: int
    only_b: int


class UnlikeTask(Answer, frozen=True, kw_only=True):
    """A common task whose payloads differ. `same_work`: only a limit differs."""

    key: str
    differs: dict[str, tuple[Any, Any]]  # by name: the values in A and B
    same_work: bool


class Difference(Answer, frozen=True, kw_only=True):
    score: float
    ci95: Range
    higher: int
    lower: int
    p_value: float


class SuccessChange(Answer, frozen=True, kw_only=True):
    gained: int
    lost: int
    p_value: float


class LeastDetectable(Answer, frozen=True, kw_only=True):
    difference: float | None
    discordance: float
    assumed: bool
    level: float
    power: float


class DomainDifference(Answer, frozen=True, kw_only=True):
    tasks: int
    score_a: float | None
    score_b: float | None
    difference: float | None
    gained: int
    lost: int


class Flip(Answer, frozen=True, kw_only=True):
    """A task that passed in one run only."""

    key: str
    number_a: int
    number_b: int
    domain: str
    change: Literal["gained", "lost"]
    score_a: float
    score_b: float


class LeftOut(Answer, frozen=True, kw_only=True):
    key: str
    state_a: TaskState
    state_b: TaskState
    reason: str


class Comparison(Answer, frozen=True, kw_only=True):
    a: Side
    b: Side
    tasks: PairCounts
    conclusion: str
    sentence: str
    notes: list[str]
    unlike: list[UnlikeTask]
    difference: Difference | None
    success: SuccessChange | None
    least_detectable: LeastDetectable | None
    by_domain: dict[str, DomainDifference]
    flips: list[Flip]
    left_out: list[LeftOut]
    only_a: list[str]
    only_b: list[str]
