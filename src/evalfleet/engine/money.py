"""What a run has spent, how many more attempts its budget allows, and which of those that run must stop."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from evalfleet.core.budget import UNLIMITED, Budget, Ramp
from evalfleet.core.cost import Bill, LiveCost, attempt_cost, committed, estimate_attempt, unseen_seconds
from evalfleet.engine.orders import Live
from evalfleet.model import Attempt, EndRecord, Outcome, Run, Task

_GONE = ("worker_lost", "preempted")  # the machine is gone: whether the attempt had begun, nobody can ask it


class Money:
    """The books of a run, as its controller keeps them; the store's say the same."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._budget = Budget(limit_usd=run.policy.budget_usd)
        self._spent_usd = 0.0
        self._ramp = Ramp()
        self._prices: dict[str, float] = {}  # of an hour of a host's worker

    @property
    def is_limited(self) -> bool:
        return self._budget.limit_usd is not None

    def price(self, host: str, usd_per_hour: float) -> None:
        self._prices[host] = usd_per_hour

    def limit(self, usd: float | None) -> None:
        self._budget = Budget(limit_usd=usd)

    def load(self, costs: Iterable[dict[str, Any]]) -> None:
        """Take over the books of earlier controllers: their ended attempts in the order of their ends."""
        for row in costs:
            self._spent_usd += row["cost_usd"]
            self._ramp.learn(row["cost_usd"], verdict=row["outcome"] == Outcome.OK)

    # Ends

    def bill(self, live: Live, end: EndRecord, now: float) -> Bill:
        """What an attempt has cost when it ends; at least what is booked for it already, where its end comes late.

        A host that tells the end tells the time. Where nobody can, the attempt had its worker until it was seen gone.
        """
        attempt = live.attempt
        reported = max(end.reported_usd, live.reported_usd, attempt.reported_usd)
        seconds = max(end.duration_s, attempt.duration_s or 0.0)
        if not end.duration_s and attempt.outcome is None:
            begun = live.started_at or attempt.started_at or (attempt.claimed_at if end.cause in _GONE else None)
            seconds = max(seconds, unseen_seconds(begun, now, self._longest_s(live.task)))
        cost = attempt_cost(self._price_of(attempt), seconds, reported)
        return Bill(seconds=seconds, reported_usd=reported, cost_usd=max(cost, attempt.cost_usd))

    def book(self, attempt: Attempt, bill: Bill, *, verdict: bool) -> None:
        """Add what an attempt cost, or what it cost besides. `attempt`: as it was before."""
        self._spent_usd += bill.cost_usd - attempt.cost_usd
        self._ramp.learn(bill.cost_usd, verdict=verdict)

    def _longest_s(self, task: Task) -> float:
        policy, spec = self._run.policy, task.spec
        return (spec.start_timeout_s or policy.start_timeout_s or 0.0) + (spec.timeout_s or policy.timeout_s)

    def _price_of(self, attempt: Attempt) -> float:
        return attempt.price_usd_per_hour or self._prices.get(attempt.host, 0.0)

    # Admission

    def allowance(self, live: Collection[Live], now: float) -> int:
        """How many more attempts the budget allows now.

        What tasks report themselves is not known before one has told: until then one attempt runs at a time.
        """
        if not self.is_limited:
            return UNLIMITED
        return min(self._budget.room(self._spent_usd, *self._committed(live, now)), self._ramp.room(len(live)))

    def message(self, now: float) -> str:
        text = self._budget.message(self._spent_usd, *self._committed((), now))
        return f"{text}: `evalfleet resume {self._run.id} --budget USD`"

    def _committed(self, live: Iterable[Live], now: float) -> tuple[float, float]:
        running = [self._so_far(one, now) for one in live]
        largest = self._ramp.largest_usd
        estimate = estimate_attempt(
            largest_usd=None if largest is None else max([largest, *(cost.so_far_usd for cost in running)]),
            price_per_hour=max(self._prices.values(), default=0.0),
            timeout_s=self._run.policy.timeout_s,
        )
        return committed(running, estimate), estimate

    def _so_far(self, one: Live, now: float) -> LiveCost:
        return LiveCost(
            price_per_hour=self._price_of(one.attempt),
            elapsed_s=now - (one.started_at or one.attempt.started_at or one.attempt.claimed_at),
            reported_usd=max(one.reported_usd, one.attempt.reported_usd),
        )
