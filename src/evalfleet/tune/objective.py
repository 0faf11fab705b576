"""The objective of a study: one or several metrics to maximise or minimise, and limits that must hold.

A trial is feasible if every limit holds; feasible ones come before all others, whatever their metrics. Limits are limits: they
are never mixed into the value.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from msgspec import Struct

from evalfleet.errors import InputError
from evalfleet.validation import quoted

_LIMIT = re.compile(r"\s*([A-Za-z_][\w.]*)\s*(<=|>=|<|>)\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*", re.ASCII)
_OPERATORS: dict[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}


class Goal(Struct, frozen=True, kw_only=True):
    metric: str
    maximise: bool

    def cost(self, value: float) -> float:
        """Smaller is better."""
        return -value if self.maximise else value


class Limit(Struct, frozen=True, kw_only=True):
    metric: str
    operator: str
    bound: float

    @property
    def text(self) -> str:
        return f"{self.metric} {self.operator} {self.bound:g}"

    def holds(self, metrics: Mapping[str, float]) -> bool:
        """A limit on a metric that was not measured does not hold."""
        return self.metric in metrics and _OPERATORS[self.operator](metrics[self.metric], self.bound)

    def excess(self, metrics: Mapping[str, float]) -> float:
        """How far the value is beyond the bound, as a share of the bound; 0 if the limit holds."""
        if self.holds(metrics):
            return 0.0
        if self.metric not in metrics:
            return math.inf
        return max(abs(metrics[self.metric] - self.bound) / (abs(self.bound) or 1.0), 1e-9)


class Objective(Struct, frozen=True, kw_only=True):
    goals: tuple[Goal, ...]
    limits: tuple[Limit, ...] = ()

    def missing(self, metrics: Mapping[str, float]) -> list[str]:
        """The metrics that a trial had to report and did not."""
        wanted = [goal.metric for goal in self.goals] + [limit.metric for limit in self.limits]
        return [name for name in dict.fromkeys(wanted) if name not in metrics]

    def feasible(self, metrics: Mapping[str, float]) -> bool:
        return all(limit.holds(metrics) for limit in self.limits)

    def broken(self, metrics: Mapping[str, float]) -> list[str]:
        """The limits that do not hold, with what was measured."""
        return [
            f"{limit.text} (it was {metrics[limit.metric]:g})"
            if limit.metric in metrics
            else f"{limit.text} (not measured)"
            for limit in self.limits
            if not limit.holds(metrics)
        ]

    def costs(self, metrics: Mapping[str, float]) -> tuple[float, ...]:
        return tuple(goal.cost(metrics[goal.metric]) for goal in self.goals)

    def rank(self, metrics: Mapping[str, float]) -> tuple[Any, ...]:
        """The sort key, best first: feasible trials by the first goal, then the others by how far they exceed their limits."""
        if self.feasible(metrics):
            return (0, *self.costs(metrics))
        return (1, sum(limit.excess(metrics) for limit in self.limits), *self.costs(metrics))

    def front(self, measured: Sequence[Mapping[str, float]]) -> list[int]:
        """The indices of the Pareto front: feasible trials that no other trial beats in every goal."""
        costs = {place: self.costs(metrics) for place, metrics in enumerate(measured) if self.feasible(metrics)}
        return [place for place, mine in costs.items() if not any(_beats(other, mine) for other in costs.values())]


def _beats(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return one != other and all(a <= b for a, b in zip(one, other, strict=True))


def objective_of(objective: Any, constraints: Any) -> Objective:
    """Read `objective` and `constraints` of a study file. Raises InputError."""
    rows = cast("list[Any]", objective) if isinstance(objective, list) else [objective]
    goals = tuple(_goal(row) for row in rows)
    if not goals or len({goal.metric for goal in goals}) < len(goals):
        raise InputError("study.objective: name each metric once, and at least one")
    if not isinstance(constraints, list):
        raise InputError('study.constraints: expected a list of texts, such as ["ttft_p99_ms <= 200"]')
    return Objective(goals=goals, limits=tuple(_limit(text) for text in cast("list[Any]", constraints)))


def _goal(row: Any) -> Goal:
    fields = cast("dict[str, Any]", row) if isinstance(row, dict) else {}
    if len(fields) != 1 or not isinstance(metric := next(iter(fields.values())), str) or not metric:
        raise InputError(
            'study.objective: write { maximize = "METRIC" } or { minimize = "METRIC" }, or a list of these'
        )
    word = next(iter(fields)).replace("ise", "ize")
    if word not in ("maximize", "minimize"):
        raise InputError(f"study.objective: {quoted(word)} must be maximize or minimize")
    return Goal(metric=metric, maximise=word == "maximize")


def _limit(text: Any) -> Limit:
    match = _LIMIT.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise InputError(
            f'study.constraints: {quoted(str(text))} is not a limit; write METRIC, one of <= < >= >, and a number: "p99_ms <= 200"'
        )
    return Limit(metric=match[1], operator=match[2], bound=float(match[3]))
