"""A plan of a run: which machines, and how much time and money they take."""

from __future__ import annotations

from msgspec import field

from evalfleet.answers.base import Answer


class Estimate(Answer, frozen=True, kw_only=True):
    """A mean, and the interval that 90 % of the simulated runs lie in."""

    mean: float
    low: float
    high: float


class PlanGroup(Answer, frozen=True, kw_only=True):
    """Machines of one kind."""

    size: str
    region: str
    spot: bool
    machines: int
    usd_per_hour: float  # of one machine, with its disk and address


class PlanOption(Answer, frozen=True, kw_only=True):
    """One fleet that no other one beats in both time and money."""

    workers: int
    groups: list[PlanGroup]
    seconds: Estimate
    usd: Estimate
    machine_hours: float


class PlanBasis(Answer, frozen=True, kw_only=True):
    """What a plan is made from."""

    tasks: int
    known_tasks: int  # that have a verdict in an earlier run
    runs: int
    machines: int  # of earlier runs, whose start times are known
    quota_asked: bool
    assumptions: list[str]  # what stands for history that is missing


class Reserved(Answer, frozen=True, kw_only=True):
    """From how many such runs a month on reserved capacity is cheaper."""

    share: float  # of the price on demand that it costs, used or not
    runs_per_month: float | None  # null: never, as a month has no time for so many


class PlanActual(Answer, frozen=True, kw_only=True):
    """What the run that followed a plan took, so far or in all."""

    run: str
    over: bool
    seconds: float
    usd: float
    seconds_inside: bool  # of the plan's interval
    usd_inside: bool


class Plan(Answer, frozen=True, kw_only=True):
    """A plan. Its times and prices are those of the cloud's clock."""

    id: str
    created_at: float
    source: str
    tasks: int
    backend: str
    deadline_s: float | None
    budget_usd: float | None
    memory_mb: dict[str, int] = field(default_factory=dict[str, int])  # by domain: what each of its tasks needs
    keeps: bool  # whether the chosen option keeps deadline and budget, with the upper ends of its intervals
    chosen: int  # index in `options`
    options: list[PlanOption]  # the Pareto front, the fastest first
    basis: PlanBasis
    reserved: Reserved | None  # null for spot machines, which cannot be reserved
    seed: int
    speed: float  # cloud seconds per second of this machine's clock; 1, but for an emulator
    actual: PlanActual | None

    @property
    def option(self) -> PlanOption:
        return self.options[self.chosen]


class Plans(Answer, frozen=True, kw_only=True):
    plans: list[Plan]
