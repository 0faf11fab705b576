"""What a run has spent, how many more attempts its budget allows, and which of those that run must stop."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import partial

from msgspec import Struct

from evalfleet.core.budget import UNLIMITED, Budget, Ramp
from evalfleet.core.cost import (
    Bill,
    LiveCost,
    attempt_cost,
    committed,
    estimate_attempt,
    max_cost_usd,
    unseen_seconds,
)
from evalfleet.engine.orders import LiveAttempt
from evalfleet.engine.placement.workers import WorkerTable
from evalfleet.model import Attempt, EndRecord, JsonObject, Kind, Outcome, Run, Task
from evalfleet.store.reader import StoreReader

_LATE_S = 60.0  # for its runner to end it, and for clock differences
_GONE = ("worker_lost", "preempted")  # the machine is gone: it cannot be asked whether the attempt had begun


class Unseen(Struct, frozen=True, kw_only=True):
    """What a given-up attempt may still cost."""

    until: float
    usd: float


class RunBudget:
    """The costs of a run in memory; the store has the same."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._budget = Budget(limit_usd=run.policy.budget_usd)
        self._spent_usd = 0.0
        self._ramp = Ramp()
        self._prices: dict[str, float] = {}  # price per hour of a host's worker
        self._least_usd = run.policy.max_cost_usd  # the smallest that a task states; None: none does
        self._some_state_none = run.policy.max_cost_usd is None
        self._shortest_s = run.policy.timeout_s  # the shortest time limit of tasks that state no cost
        self._refused_usd: float | None = None  # possible cost of the last task that did not fit
        self._unseen: dict[str, Unseen] = {}

    @property
    def is_limited(self) -> bool:
        return self._budget.limit_usd is not None

    def price(self, host: str, usd_per_hour: float) -> None:
        self._prices[host] = usd_per_hour

    def limit(self, usd: float | None, store: StoreReader) -> None:
        self._budget = Budget(limit_usd=usd)
        self._look_at_limits(store)

    def load(self, store: StoreReader) -> None:
        """Load the costs of earlier controllers: their ended attempts, in the order of their ends."""
        lost: list[tuple[int, int]] = []
        for row in store.costs.of_attempts(self._run.id):  # there may be a million
            self._spent_usd += row["cost_usd"]
            self._ramp.learn(row["cost_usd"], verdict=row["outcome"] == Outcome.OK)
            if row["kind"] == Kind.WORKER_LOST:
                lost.append((row["task_number"], row["number"]))
        self._look_at_limits(store)
        for task_number, number in lost if self.is_limited else ():
            found = store.attempts.all(self._run.id, task_number)
            attempt = next(one for one in found if one.number == number)
            self.lose(store.tasks.at(self._run.id, task_number), attempt)

    def _look_at_limits(self, store: StoreReader) -> None:
        """The highest costs of tasks matter only with a budget."""
        if self.is_limited:
            least, some_none, shortest_s = store.costs.stated(self._run.id, self._run.policy.timeout_s)
            default, some_none = self._run.policy.max_cost_usd, some_none or self._run.open
            given = (least, default if some_none else None)
            self._least_usd = min((usd for usd in given if usd is not None), default=None)
            self._some_state_none = some_none and default is None
            self._shortest_s = self._run.policy.timeout_s if shortest_s is None else shortest_s

    def with_cost(self, reason: JsonObject, workers: WorkerTable) -> JsonObject:
        """Why a run pauses, and what its remote machines cost meanwhile, busy or not."""
        slots = {host: len(workers.workers(host)) for host in workers.hosts} if workers.is_remote else {}
        usd_per_hour = sum(self._prices.get(host, 0.0) * count for host, count in slots.items())
        if usd_per_hour <= 0:
            return reason
        machines = "its machine costs" if len(slots) == 1 else f"its {len(slots)} machines cost"
        message = f"{reason.get('message', 'paused')}; {machines} ${usd_per_hour:.2f} an hour meanwhile"
        return {**reason, "message": message, "usd_per_hour": usd_per_hour}

    # Ends

    def bill(self, live: LiveAttempt, end: EndRecord, now: float) -> Bill:
        """What an attempt has cost when it ends; at least what is booked for it already, where its end comes late.

        A host that reports the end reports the time. Otherwise the attempt had its worker until it was found gone.
        """
        attempt = live.attempt
        reported = max(end.reported_usd, live.reported_usd, attempt.reported_usd)
        seconds = max(end.duration_s, attempt.duration_s or 0.0)
        if not end.duration_s and attempt.outcome is None:
            begun = live.started_at or attempt.started_at or (attempt.claimed_at if end.cause in _GONE else None)
            seconds = max(seconds, unseen_seconds(begun, now, self._longest_s(live, reported)))
        cost = attempt_cost(self._price_of(attempt), seconds, reported)
        return Bill(seconds=seconds, reported_usd=reported, cost_usd=max(cost, attempt.cost_usd))

    def book(self, attempt: Attempt, bill: Bill, *, verdict: bool) -> None:
        """Add what an attempt cost, or what it cost besides. `attempt`: as it was before."""
        self._spent_usd += bill.cost_usd - attempt.cost_usd
        self._ramp.learn(bill.cost_usd, verdict=verdict)
        self._unseen.pop(attempt.id, None)

    def lose(self, task: Task, attempt: Attempt) -> None:
        """An attempt that was given up may go on unseen, until its runner ends it at the latest."""
        bound = max_cost_usd(self._run.policy, task.spec)
        if bound is not None and bound > attempt.cost_usd:
            until = (attempt.started_at or attempt.claimed_at) + self._limits_s(task) + _LATE_S
            self._unseen[attempt.id] = Unseen(until=until, usd=bound - attempt.cost_usd)

    def _limits_s(self, task: Task) -> float:
        policy, spec = self._run.policy, task.spec
        return (spec.start_timeout_s or policy.start_timeout_s or 0.0) + self._timeout_s(task)

    def _timeout_s(self, task: Task) -> float:
        return task.spec.timeout_s or self._run.policy.timeout_s

    def _longest_s(self, live: LiveAttempt, reported_usd: float) -> float:
        """When its runner ends it, because of its time or cost limit."""
        longest, price = self._limits_s(live.task), self._price_of(live.attempt)
        bound = max_cost_usd(self._run.policy, live.task.spec)
        if bound is None or price <= 0:
            return longest
        return min(longest, max(0.0, bound - reported_usd) / price * 3600.0)

    def _price_of(self, attempt: Attempt) -> float:
        return attempt.price_usd_per_hour or self._prices.get(attempt.host, 0.0)

    # Admission

    def allowance(self, live: Collection[LiveAttempt], now: float) -> int:
        """How many more attempts the budget allows now, if they are the cheapest that wait.

        What tasks report is unknown before the first report: until then one attempt runs at a time. Tasks that state
        their highest cost are not limited like this.
        """
        if not self.is_limited:
            return UNLIMITED
        committed_usd, estimate = self._committed(live, now)
        unsure = self._room(live, committed_usd, estimate) if self._some_state_none else 0
        if self._least_usd is None:
            return unsure
        return max(unsure, self._budget.room(self._spent_usd, committed_usd, self._least_usd))

    def admits(self, task: Task, live: Collection[LiveAttempt], now: float) -> bool:
        """Whether an attempt of this task fits."""
        if not self.is_limited:
            return True
        committed_usd, estimate = self._committed(live, now, self._timeout_s(task))
        bound = max_cost_usd(self._run.policy, task.spec)
        if bound is None:
            fits = self._room(live, committed_usd, estimate) > 0
        else:
            fits = self._budget.admits(self._spent_usd, committed_usd, bound)
        self._refused_usd = None if fits else estimate if bound is None else bound
        return fits

    def estimate_usd(self, task: Task, price_usd_per_hour: float) -> float:
        """What an attempt of this task may cost, whether the run has a budget or not."""
        bound = max_cost_usd(self._run.policy, task.spec)
        if bound is not None:
            return bound
        return estimate_attempt(
            largest_usd=self._ramp.largest_usd, price_per_hour=price_usd_per_hour, timeout_s=self._timeout_s(task)
        )

    def confirmed_room(self, live: Iterable[LiveAttempt]) -> int:
        """How many more attempts may start whose task states no cost, before other attempts have ended and told it."""
        return self._ramp.room(sum(max_cost_usd(self._run.policy, one.task.spec) is None for one in live))

    def is_spent(self, now: float, *, refused: bool) -> bool:
        """Whether the budget admits nothing more while nothing runs, and waiting does not help.

        Args:
            refused: the last task that was checked did not fit.
        """
        return (refused or self.allowance((), now) == 0) and self.waits_until(now) is None

    def waits_until(self, now: float) -> float | None:
        """When a given-up attempt that may go on unseen is certainly over, so that its possible cost is free."""
        return min((one.until for one in self._unseen.values() if one.until > now), default=None)

    def over(self, live: Collection[LiveAttempt], now: float) -> list[str]:
        """The attempts to stop because the budget is passed: those whose tasks report what they spend.

        Every further report would add to it. A worker's time has a known price and ends at its limits.
        """
        if not self.is_limited or not live:
            return []
        costs = [self._so_far(one, now) for one in live]
        if not self._budget.is_passed(self._spent_usd + sum(cost.so_far_usd for cost in costs)):
            return []
        return [one.attempt.id for one, cost in zip(live, costs, strict=True) if cost.reported_usd > 0]

    @property
    def stop_message(self) -> str:
        return f"stopped at the run's budget of ${self._budget.limit_usd or 0.0:.2f}"

    def message(self, now: float) -> str:
        committed_usd, estimate = self._committed((), now)
        if self._least_usd is not None and not self._some_state_none:
            estimate = self._least_usd
        estimate = estimate if self._refused_usd is None else self._refused_usd
        text = self._budget.message(self._spent_usd, committed_usd, estimate)
        return f"{text}: `evalfleet resume {self._run.id} --budget USD`"

    def _room(self, live: Iterable[LiveAttempt], committed_usd: float, estimate_usd: float) -> int:
        """For attempts of tasks that do not state what they cost."""
        unsure = sum(max_cost_usd(self._run.policy, one.task.spec) is None for one in live)
        return min(self._budget.room(self._spent_usd, committed_usd, estimate_usd), self._ramp.room(unsure))

    def _committed(
        self, live: Iterable[LiveAttempt], now: float, timeout_s: float | None = None
    ) -> tuple[float, float]:
        """What the attempts in flight will have cost, as far as it is known, and what one more may cost.

        Args:
            timeout_s: of that one; None: it is the one that takes the least time.
        """
        found = [(one, self._so_far(one, now), max_cost_usd(self._run.policy, one.task.spec)) for one in live]
        largest = self._ramp.largest_usd
        estimate = partial(
            estimate_attempt,
            largest_usd=None if largest is None else max([largest, *(cost.so_far_usd for _, cost, _ in found)]),
            price_per_hour=max(self._prices.values(), default=0.0),
        )
        unsure = sum(
            committed([cost], estimate(timeout_s=self._timeout_s(one.task)))
            for one, cost, bound in found
            if bound is None
        )
        stated = sum(max(bound, cost.so_far_usd) for _, cost, bound in found if bound is not None)
        unseen = sum(one.usd for one in self._unseen.values() if one.until > now)
        return unsure + stated + unseen, estimate(timeout_s=self._shortest_s if timeout_s is None else timeout_s)

    def _so_far(self, one: LiveAttempt, now: float) -> LiveCost:
        return LiveCost(
            price_per_hour=self._price_of(one.attempt),
            elapsed_s=now - (one.started_at or one.attempt.started_at or one.attempt.claimed_at),
            reported_usd=max(one.reported_usd, one.attempt.reported_usd),
        )
