"""The cost of attempts, the wasted share, and the forecast for the whole run."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from evalfleet.duration import HOUR_S
from evalfleet.model import Policy, TaskSpec


class LiveCost(Struct, frozen=True, kw_only=True):
    """A running attempt."""

    price_per_hour: float
    elapsed_s: float
    reported_usd: float = 0.0

    @property
    def so_far_usd(self) -> float:
        return attempt_cost(self.price_per_hour, self.elapsed_s, self.reported_usd)


class Forecast(Struct, frozen=True, kw_only=True):
    """None where there is no data yet."""

    estimated_total_usd: float | None
    cost_per_task_usd: float | None
    hourly_rate_usd: float | None


def attempt_cost(price_per_hour: float, seconds: float, reported_usd: float) -> float:
    """Worker price x time, and what the task reported. Never negative, whatever the clocks said."""
    return max(0.0, price_per_hour) * max(0.0, seconds) / HOUR_S + max(0.0, reported_usd)


def max_cost_usd(policy: Policy, spec: TaskSpec) -> float | None:
    """What one attempt of the task may cost, as it states; None: it does not."""
    return policy.max_cost_usd if spec.max_cost_usd is None else spec.max_cost_usd


class Bill(Struct, frozen=True, kw_only=True):
    """What is booked for an ended attempt."""

    seconds: float  # of its worker's time
    reported_usd: float
    cost_usd: float


def unseen_seconds(begun_at: float | None, now: float, longest_s: float) -> float:
    """The worker time of an attempt whose end was not observed: until it was found gone, at most the runner's time limit."""
    return 0.0 if begun_at is None else max(0.0, min(now - begun_at, longest_s))


def estimate_attempt(*, largest_usd: float | None, price_per_hour: float, timeout_s: float) -> float:
    """What one more attempt may cost: the dearest so far, and before any, the price of its whole time limit.

    `largest_usd` is the largest cost of any attempt of the run, those that still run included; None before the first.
    """
    if largest_usd is not None:
        return largest_usd
    return attempt_cost(price_per_hour, timeout_s, 0.0)


def committed(live: Iterable[LiveCost], estimate_usd: float) -> float:
    """What the attempts that run now will have cost: each at least the estimate, and at least what it cost already."""
    return sum((max(estimate_usd, attempt.so_far_usd) for attempt in live), 0.0)


def forecast(*, total_usd: float, decided: int, tasks: int, elapsed_s: float) -> Forecast:
    """From what is spent: `decided` of `tasks` are final or held. Waste is part of the price of a task."""
    per_task = total_usd / decided if decided > 0 else None
    return Forecast(
        estimated_total_usd=None if per_task is None else total_usd + per_task * max(0, tasks - decided),
        cost_per_task_usd=per_task,
        hourly_rate_usd=total_usd / elapsed_s * HOUR_S if elapsed_s > 0 else None,
    )
