"""What a run has spent, and how many more attempts its budget allows."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from evalfleet.core.budget import UNLIMITED, Budget
from evalfleet.core.cost import LiveCost, attempt_cost, committed, estimate_attempt
from evalfleet.engine.orders import Live
from evalfleet.model import Outcome, Run


class Money:
    def __init__(self, run: Run) -> None:
        self._run = run
        self._budget = Budget(limit_usd=run.policy.budget_usd)
        self._spent_usd = 0.0
        self._largest_usd: float | None = None
        self._informed = False  # a verdict has told what an attempt may cost; a crash tells less
        self._prices: dict[str, float] = {}  # of an hour of a host

    def price(self, host: str, usd_per_hour: float) -> None:
        self._prices[host] = usd_per_hour

    def limit(self, usd: float | None) -> None:
        self._budget = Budget(limit_usd=usd)

    def load(self, sums: dict[str, Any]) -> None:
        """Add the attempts of one outcome that are stored already."""
        if sums["outcome"] is not None:
            self._spent_usd += sums["cost_usd"]
            self._largest_usd = max(self._largest_usd or 0.0, sums["max_cost_usd"])
            self._informed |= sums["outcome"] == Outcome.OK

    def add(self, host: str, duration_s: float, reported_usd: float, *, verdict: bool) -> float:
        """Book an ended attempt; returns what it cost."""
        self._informed |= verdict
        cost = attempt_cost(self._prices.get(host, 0.0), duration_s, reported_usd)
        self._spent_usd += cost
        self._largest_usd = max(self._largest_usd or 0.0, cost)
        return cost

    def allowance(self, live: Collection[Live], now: float) -> int:
        """How many more attempts the budget allows now.

        What tasks report themselves is not known before one has told: until then one attempt runs at a time.
        """
        if self._budget.limit_usd is None:
            return UNLIMITED
        room = self._budget.room(self._spent_usd, *self._committed(live, now))
        return room if self._informed else min(room, max(0, 1 - len(live)))

    def message(self, now: float) -> str:
        text = self._budget.message(self._spent_usd, *self._committed((), now))
        return f"{text}: `evalfleet resume {self._run.id} --budget USD`"

    def _committed(self, live: Iterable[Live], now: float) -> tuple[float, float]:
        running = [
            LiveCost(
                price_per_hour=self._prices.get(one.attempt.host, 0.0),
                elapsed_s=now - (one.attempt.started_at or one.attempt.claimed_at),
                reported_usd=one.reported_usd,
            )
            for one in live
        ]
        largest = max([cost.so_far_usd for cost in running], default=self._largest_usd or 0.0)
        estimate = estimate_attempt(
            largest_usd=None if self._largest_usd is None else max(self._largest_usd, largest),
            price_per_hour=max(self._prices.values(), default=0.0),
            timeout_s=self._run.policy.timeout_s,
        )
        return committed(running, estimate), estimate
