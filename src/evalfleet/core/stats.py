"""Scores with their uncertainty, times with theirs.

Scores follow one rule. A task that succeeded counts its score. A task that failed (the task itself is blamed) counts 0
in both scores. A task without a verdict that is not to blame (held, cancelled, unfinished) counts 0 in *strict* and is
left out of *valid*. Coverage is the share of the tasks that count in *valid*.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from evalfleet.model import Task, TaskState

_Z95 = 1.959963984540054


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """None where nothing counts."""

    strict: float | None
    valid: float | None
    coverage: float
    verdicts: int
    ci95_strict: Interval | None
    ci95_valid: Interval | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryBias:
    """Whether retries flatter the score: tasks decided on their first attempt against those decided later."""

    first: int
    first_score: float | None
    later: int
    later_score: float | None

    @property
    def difference(self) -> float | None:
        """Score of the later ones less that of the first ones."""
        if self.first_score is None or self.later_score is None:
            return None
        return self.later_score - self.first_score


def wilson(successes: float, count: int) -> Interval | None:
    """Wilson's 95 % interval of a share; None for a count of 0.

    For fractional scores the sum of the scores stands for the successes. The variance of scores within 0..1 is at most
    that of yes-or-no with the same mean, so the interval is then wider than needed, never too narrow.
    """
    if count <= 0:
        return None
    share = min(1.0, max(0.0, successes / count))
    square = _Z95 * _Z95
    middle = (share + square / (2 * count)) / (1 + square / count)
    half = _Z95 * math.sqrt(share * (1 - share) / count + square / (4 * count * count)) / (1 + square / count)
    return Interval(low=max(0.0, min(share, middle - half)), high=min(1.0, max(share, middle + half)))


def scores(*, total: int, verdicts: int, score_sum: float, failed: int) -> Scores:
    """Both scores from counts: of all tasks, of tasks with a verdict, of their scores, of tasks in state `failed`."""
    counted = verdicts + failed
    return Scores(
        strict=score_sum / total if total else None,
        valid=score_sum / counted if counted else None,
        coverage=counted / total if total else 0.0,
        verdicts=verdicts,
        ci95_strict=wilson(score_sum, total),
        ci95_valid=wilson(score_sum, counted),
    )


def scores_of(tasks: Iterable[Task]) -> Scores:
    """Both scores of these tasks."""
    total = failed = 0
    values: list[float] = []
    for task in tasks:
        total += 1
        if task.state is TaskState.SUCCEEDED and task.verdict is not None:
            values.append(task.verdict.score)
        failed += task.state is TaskState.FAILED
    return scores(total=total, verdicts=len(values), score_sum=math.fsum(values), failed=failed)


def retry_bias(decided: Iterable[tuple[int, float]]) -> RetryBias:
    """From (number of attempts, score) of every task with a verdict."""
    first: list[float] = []
    later: list[float] = []
    for attempts, score in decided:
        (first if attempts <= 1 else later).append(score)
    return RetryBias(first=len(first), first_score=_mean(first), later=len(later), later_score=_mean(later))


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which that share lies, interpolated between neighbours.

    Raises: ValueError, where there are no values.
    """
    if not values:
        raise ValueError("no values")
    ordered = sorted(values)
    place = min(1.0, max(0.0, share)) * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def eta(durations: Sequence[float], *, waiting: int, elapsed: Sequence[float], workers: int) -> Interval | None:
    """In how many seconds the run should be over; None before anything has ended.

    The work left (tasks that wait, and what the mean leaves of the running ones, given by their elapsed times) is
    shared by the workers. The low end takes a mean two standard errors below the observed one; the high end takes it
    above, and adds the last task's time (90th percentile), for which the other workers have nothing to do.
    """
    left = waiting + len(elapsed)
    if left == 0:
        return Interval(low=0.0, high=0.0)
    if not durations or workers <= 0:
        return None
    count = len(durations)
    mean = math.fsum(durations) / count
    spread = math.sqrt(math.fsum((value - mean) ** 2 for value in durations) / count)
    error = 2 * spread / math.sqrt(count)
    busy = min(workers, left)
    live = math.fsum(max(0.0, mean - since) for since in elapsed)
    low = (waiting * max(0.0, mean - error) + live) / busy
    high = (waiting * (mean + error) + live) / busy + percentile(durations, 0.9)
    return Interval(low=low, high=max(low, high))


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None
