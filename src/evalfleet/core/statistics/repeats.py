"""Statistics of repeated tasks: how a task's score varies, and how often one of k attempts succeeds (pass@k).

An episode counts as a task does in the valid score: by its verdict, or as 0 where its failure is its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec import Struct

from evalfleet.core.statistics.scores import Interval, clustered


class Repeats(Struct, frozen=True, kw_only=True):
    """The episodes of one task."""

    task: str
    domain: str
    episodes: int
    counted: int  # those that count in the valid score
    successes: int
    score_sum: float
    square_sum: float  # of the scores
    low: float | None  # lowest score that counts
    high: float | None

    @property
    def mean(self) -> float | None:
        return self.score_sum / self.counted if self.counted else None

    @property
    def deviation(self) -> float | None:
        """Standard deviation, estimated (n - 1); None below two episodes that count."""
        if self.counted < 2:
            return None
        squares = self.square_sum - self.score_sum * self.score_sum / self.counted
        return math.sqrt(max(0.0, squares) / (self.counted - 1))

    def pass_at(self, k: int) -> float | None:
        """Chance that at least one of `k` episodes succeeds; None where fewer count."""
        return pass_at(self.counted, self.successes, k) if 1 <= k <= self.counted else None


class PassAt(Struct, frozen=True, kw_only=True):
    """Mean over the tasks of which at least `k` episodes count."""

    k: int
    tasks: int
    mean: float
    ci95: Interval


class Overall(Struct, frozen=True, kw_only=True):
    """A run with repeats; every task weighs the same."""

    tasks: int
    episodes: int
    most: int  # episodes of one task
    mean: float | None
    ci95: Interval | None
    deviation: float | None  # mean over the tasks
    always: int  # tasks that succeeded in every episode that counts
    sometimes: int
    never: int
    pass_at: tuple[PassAt, ...]  # for k from 1 to `most`, while any task has so many that count


def pass_at(count: int, successes: int, k: int) -> float:
    """The unbiased estimate from `count` episodes: 1 - C(count - successes, k) / C(count, k).

    It is the share of all choices of k episodes that have a success among them.
    """
    return 1.0 - math.comb(count - successes, k) / math.comb(count, k)


def overall(repeats: Sequence[Repeats]) -> Overall:
    """Sum up the tasks of a run. The interval of each mean takes the task as the unit."""
    counted = [one for one in repeats if one.counted]
    most = max((one.episodes for one in repeats), default=0)
    # Tasks weigh the same here, however many of their episodes count; so a group is its mean, once.
    means = [one.score_sum / one.counted for one in counted]
    deviations = [one.deviation for one in repeats if one.deviation is not None]
    return Overall(
        tasks=len(repeats),
        episodes=sum(one.episodes for one in repeats),
        most=most,
        mean=_mean(means),
        ci95=clustered([(mean, 1) for mean in means], sum(one.counted for one in counted)),
        deviation=_mean(deviations),
        always=sum(one.successes == one.counted for one in counted),
        sometimes=sum(0 < one.successes < one.counted for one in counted),
        never=sum(one.successes == 0 for one in counted),
        pass_at=tuple(found for k in range(1, most + 1) if (found := _pass_at(counted, k)) is not None),
    )


def _pass_at(repeats: Sequence[Repeats], k: int) -> PassAt | None:
    values = [(value, one.counted) for one in repeats if (value := one.pass_at(k)) is not None]
    bounds = clustered([(value, 1) for value, _ in values], sum(counted for _, counted in values))
    if bounds is None:
        return None
    return PassAt(k=k, tasks=len(values), mean=math.fsum(value for value, _ in values) / len(values), ci95=bounds)


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None
