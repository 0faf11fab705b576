"""Scores with their uncertainty, times with theirs.

Scores follow one rule. A task that is done (has a verdict) counts its score. A task that failed (the task itself is blamed) counts 0
in both scores. A task without a verdict that is not to blame (held, cancelled, unfinished) counts 0 in *strict* and is
left out of *valid*. Coverage is the share of the tasks that count in *valid*.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence

from msgspec import Struct

_Z95 = 1.959963984540054
_STUDENT = (math.inf, 12.706, 4.303, 3.182, 2.776, 2.571)  # by degrees of freedom; from 6 on a series is good enough


class Interval(Struct, frozen=True, kw_only=True):
    low: float
    high: float


class Scores(Struct, frozen=True, kw_only=True):
    """None where nothing counts."""

    strict: float | None
    valid: float | None
    coverage: float
    verdicts: int
    ci95_strict: Interval | None
    ci95_valid: Interval | None


class RetryBias(Struct, frozen=True, kw_only=True):
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
    """Wilson's 95 % confidence interval of a share; None for a count of 0.

    For fractional scores the sum of the scores stands for the successes. The variance of scores within 0..1 is at most
    that of yes-or-no with the same mean, so the interval is then wider than needed, never too narrow.
    """
    return _wilson(successes / count, count) if count > 0 else None


def clustered(groups: Sequence[tuple[float, int]], most: float | None = None) -> Interval | None:
    """95 % confidence interval of a mean of scores within 0..1 that come in groups, such as the episodes of one task.

    The group is the unit: what is alike within one tells nothing new. The spread between the groups says how many
    independent scores the mean is worth (less where there are few groups: Student's t, after Korn and Graubard), and
    Wilson's interval is taken for that many. Without any spread it is worth as many as there are groups.

    Args:
        groups: sum and count of the scores of each; empty ones are ignored.
        most: independent scores that the mean can be worth at most; all of them, if None.
    """
    groups = [(total, size) for total, size in groups if size > 0]
    if not groups:
        return None
    count = sum(size for _, size in groups)
    mean = math.fsum(total for total, _ in groups) / count
    many = len(groups)
    squares = math.fsum((total - mean * size) ** 2 for total, size in groups)
    if many < 2 or squares < 1e-12:
        return _wilson(mean, many)
    variance = many / (many - 1) * squares / (count * count)
    worth = min(mean * (1 - mean) / variance, count if most is None else most)
    return _wilson(mean, worth * (_Z95 / student95(many - 1)) ** 2)


def student95(freedom: int) -> float:
    """The 97.5 % point of Student's distribution, to three digits."""
    if freedom < len(_STUDENT):
        return _STUDENT[freedom]
    z, q = _Z95, _Z95 * _Z95
    first = z * (q + 1) / 4
    second = z * (5 * q**2 + 16 * q + 3) / 96
    third = z * (3 * q**3 + 19 * q**2 + 17 * q - 15) / 384
    return z + first / freedom + second / freedom**2 + third / freedom**3


def _wilson(share: float, count: float) -> Interval:
    share = min(1.0, max(0.0, share))
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

    The work left (tasks that wait, and the rest of the running ones, given by their elapsed times) is shared by the
    workers. Short tasks end first, so what has ended is not all: what runs longer than the mean raises the mean, and the
    rest of a running task is what those had left that took longer. One that has outlasted all may be over now (low), or
    take as long again (high). The low end takes a mean two standard errors below; the high end takes it above, and adds
    the last task's time (90th percentile), for which the other workers have nothing to do.
    """
    left = waiting + len(elapsed)
    if left == 0:
        return Interval(low=0.0, high=0.0)
    if not durations or workers <= 0:
        return None
    count = len(durations)
    mean = math.fsum(durations) / count
    late = math.fsum(max(0.0, since - mean) for since in elapsed) / count
    spread = math.sqrt(math.fsum((value - mean) ** 2 for value in durations) / count)
    error = 2 * spread / math.sqrt(count)
    busy = min(workers, left)
    ordered = sorted(durations)
    rests = [_rest(ordered, since) for since in elapsed]
    live = [since if rest is None else rest for rest, since in zip(rests, elapsed, strict=True)]
    known = [rest for rest in rests if rest is not None]
    low = max([(waiting * max(0.0, mean - error) + math.fsum(known)) / busy, *known])
    high = (waiting * (mean + late + error) + math.fsum(live)) / busy + percentile(ordered, 0.9)
    return Interval(low=low, high=max([low, high, *live]))


def _rest(ordered: Sequence[float], since: float) -> float | None:
    """What tasks had left, in the mean, that took longer than that; None where none did."""
    place = bisect_right(ordered, since)
    longer = len(ordered) - place
    return (math.fsum(ordered[place:]) / longer - since) if longer else None


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None
