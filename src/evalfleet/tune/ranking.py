"""The ranking of a study's configurations, and how certain it is."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

from msgspec import Struct

from evalfleet.core.statistics.scores import Interval
from evalfleet.tune.expression import Value
from evalfleet.tune.objective import Objective
from evalfleet.tune.trial import Progress, Role, Trial

_STUDENT = (math.inf, 12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)  # by degrees of freedom


class Contender(Struct, frozen=True, kw_only=True):
    """A configuration with all its measurements. Its metrics are medians over them."""

    parameters: Mapping[str, Value]
    metrics: Mapping[str, float]
    values: tuple[float, ...]  # of the first goal, one per measurement
    feasible: bool
    broken: tuple[str, ...]  # limits that do not hold
    is_baseline: bool
    key: str  # of its first trial
    failures: int  # measurements that failed

    @property
    def interval(self) -> Interval | None:
        """The 95 % confidence interval of the first goal's mean; None with fewer than two measurements."""
        count = len(self.values)
        if count < 2:
            return None
        t = _STUDENT[count - 1] if count <= len(_STUDENT) else 1.96 + 2.4 / (count - 1)
        half = t * statistics.stdev(self.values) / math.sqrt(count)
        mean = statistics.fmean(self.values)
        return Interval(low=mean - half, high=mean + half)


def contenders(objective: Objective, trials: Sequence[Trial]) -> list[Contender]:
    """Every configuration that has a value to compare, best first. Measurements of the confirmation are left out."""
    groups: dict[str, list[Trial]] = {}
    for trial in trials:
        if trial.final and trial.role is not Role.CONFIRM:
            groups.setdefault(trial.point, []).append(trial)
    found: list[Contender] = []
    for group in groups.values():
        measured = [trial for trial in group if trial.progress is Progress.MEASURED]
        if measured:
            is_baseline = any(trial.role is Role.BASELINE for trial in group)
            found.append(contender(objective, group, measured, is_baseline=is_baseline))
    return sorted(found, key=lambda one: objective.rank(one.metrics))


def contender(
    objective: Objective, group: Sequence[Trial], measured: Sequence[Trial], *, is_baseline: bool
) -> Contender:
    """One configuration by these of its trials."""
    names = set(measured[0].metrics).intersection(*(trial.metrics for trial in measured))
    metrics = {name: statistics.median(trial.metrics[name] for trial in measured) for name in sorted(names)}
    goal = objective.goals[0]
    return Contender(
        parameters=measured[0].parameters,
        metrics=metrics,
        values=tuple(trial.metrics[goal.metric] for trial in measured),
        feasible=objective.feasible(metrics),
        broken=tuple(objective.broken(metrics)),
        is_baseline=is_baseline,
        key=measured[0].key,
        failures=sum(trial.progress is Progress.FAILED for trial in group),
    )


def best(objective: Objective, ranked: Sequence[Contender]) -> Contender | None:
    """The best configuration, if any keeps all limits."""
    return next((one for one in ranked if one.feasible), None)


def front(objective: Objective, ranked: Sequence[Contender]) -> list[Contender]:
    """With several goals: those that no other beats in all of them."""
    return [ranked[place] for place in objective.front([one.metrics for one in ranked])]


def verdict(objective: Objective, leader: Contender, baseline: Contender | None) -> str:
    """Compare the best configuration with the baseline, in one sentence."""
    if baseline is None:
        return "the baseline was not measured, so there is no comparison"
    if leader.is_baseline:
        return "no configuration beats the baseline"
    goal = objective.goals[0]
    before, after = baseline.metrics[goal.metric], leader.metrics[goal.metric]
    change = f"{(after - before) / abs(before):+.1%} in {goal.metric} against the baseline" if before else "better"
    mine, theirs = leader.interval, baseline.interval
    if not baseline.feasible:
        return f"{change}, which breaks {', '.join(baseline.broken)}"
    if mine is None or theirs is None:
        return f"{change}, measured once: set repeats = 3 to see whether it is more than noise"
    if mine.low <= theirs.high and theirs.low <= mine.high:
        return f"{change}, not distinguishable from it: the 95 % confidence intervals overlap"
    return f"{change}; the 95 % confidence intervals do not overlap"
