"""Studies: what they search, what they found, and their trials."""

from __future__ import annotations

from typing import Literal

from evalfleet.answers.base import Answer
from evalfleet.model import RunState

Value = str | bool | int | float
"""Of a parameter."""


Phase = Literal["waiting", "deploying", "benchmarking"]
"""What an open trial does now."""


class Bounds(Answer, frozen=True, kw_only=True):
    low: float
    high: float


class Configuration(Answer, frozen=True, kw_only=True):
    """One set of parameters, and what it measured."""

    trial: str
    parameters: dict[str, Value]
    metrics: dict[str, float]
    measurements: int
    values: list[float]
    ci95: Bounds | None
    feasible: bool
    broken: list[str]
    is_baseline: bool
    failures: int


class Confirmed(Answer, frozen=True, kw_only=True):
    """The winner measured alone on its machine."""

    alone: Configuration
    beside: float
    change: float | None
    text: str


class TrialCounts(Answer, frozen=True, kw_only=True):
    open: int
    measured: int
    failed: int
    void: int


class StudyFound(Answer, frozen=True, kw_only=True):
    """What a study found, for where a run shows its scores."""

    strategy: str
    objective: list[dict[str, str]]  # {"maximize": metric} or {"minimize": metric}
    constraints: list[str]
    searched: int
    wanted: int
    counts: TrialCounts
    best: Configuration | None
    baseline: Configuration | None
    verdict: str | None
    confirmed: Confirmed | None
    flags: str | None
    front: list[Configuration] | None
    nearest: Configuration | None


class StudyParameter(Answer, frozen=True, kw_only=True):
    name: str
    type: Literal["choice", "integer", "continuous"]
    values: list[Value] | None  # of a choice
    low: float | None
    high: float | None
    log: bool
    when: str | None


class Importance(Answer, frozen=True, kw_only=True):
    name: str
    share: float


class Rung(Answer, frozen=True, kw_only=True):
    """One level of successive halving: how many trials may reach it, with how much of the resource, and how they fared."""

    rung: int
    budget: float
    wanted: int
    made: int
    open: int
    measured: int
    failed: int
    void: int
    leads: str | None


class StudyRow(StudyFound, frozen=True, kw_only=True):
    """A study without its trials."""

    run: str
    name: str
    state: RunState
    reason: str | None
    open: bool
    created_at: float
    started_at: float | None
    ended_at: float | None
    seed: int
    parallel: int
    pool: str | None
    parameters: list[StudyParameter]
    forbid: list[str]
    repeats: int
    crowded: str | None
    importance: list[Importance] | None
    resource: str | None
    rungs: list[Rung] | None
    owner: str  # the user whose study it is; "": not known
    project: str
    tags: dict[str, str]


class TrialPhases(Answer, frozen=True, kw_only=True):
    deploying_s: float
    benchmarking_s: float


class TrialFailure(Answer, frozen=True, kw_only=True):
    kind: str
    evidence: str | None


class Trial(Answer, frozen=True, kw_only=True):
    key: str
    number: int
    task: int
    role: str
    rung: int | None
    progress: Literal["open", "measured", "failed", "void"]
    phase: Phase | None
    parameters: dict[str, Value]
    metrics: dict[str, float]
    feasible: bool | None
    broken: list[str]
    worker: str | None
    gpus: list[int]
    started_at: float | None
    ended_at: float | None
    duration_s: float | None
    phases: TrialPhases | None
    reason: str | None
    failure: TrialFailure | None


class HistoryPoint(Answer, frozen=True, kw_only=True):
    """One measurement, in the order of their ends, and the best until then that keeps all limits."""

    number: int
    at: float
    value: float
    feasible: bool
    best: float | None


class StudyFacts(StudyRow, frozen=True, kw_only=True):
    """All of a study."""

    trials: list[Trial]
    history: list[HistoryPoint]


class StudyList(Answer, frozen=True, kw_only=True):
    studies: list[StudyRow]


class BestParameters(Answer, frozen=True, kw_only=True):
    """As `evalfleet study best --json` prints it."""

    run: str
    parameters: dict[str, Value]


class SubmittedStudy(Answer, frozen=True, kw_only=True):
    run: str
    name: str
    state: RunState
    folder: str
