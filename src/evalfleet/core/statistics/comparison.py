"""The comparison of two runs of the same tasks: a real difference, or chance.

The runs are paired: each pair is one task with what both runs made of it, so that the tasks' own difficulty cancels out.
Two numbers have to agree before one run is called better: an exact test on how many tasks went up and how many down, and
a bootstrap interval of the mean difference. The test alone ignores by how much; the interval alone is too narrow where
few tasks differ.

Where a task was repeated, its episodes are averaged first: the task is what is drawn and counted, because its episodes
are alike, and taking them for independent tasks would see differences where there are none.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import StrEnum
from random import Random

from msgspec import Struct

from evalfleet.core.statistics.scores import Interval, percentile

LEVEL = 0.05
POWER = 0.8
ASSUMED_DISCORDANCE = 0.2
"""Mean squared difference that is taken where no task differs, and nothing can be seen of it."""

_DIGITS = 12  # what lies beyond is a float's rounding, no change
_Z_LEVEL = 1.959963984540054
_Z_POWER = 0.8416212335729143
_LEAST_PAIRS = 6  # with 5 pairs even the clearest case, all of them one way, has p = 0.0625
_RESAMPLES = 2_000
_LEAST_RESAMPLES = 400
_DRAWS = 8_000_000  # about a second


class Conclusion(StrEnum):
    BETTER = "b_better"
    WORSE = "a_better"
    UNCLEAR = "not_distinguishable"
    NONE = "nothing_counts"


class Pair(Struct, frozen=True, kw_only=True):
    """One task that counts in both runs. A failure that is the task's own has score 0 and no success."""

    key: str
    domain: str
    score_a: float
    score_b: float
    success_a: bool
    success_b: bool
    task: str | None = None  # what pairs have in common that are episodes of one task; None: it is one of its own

    @property
    def difference(self) -> float:
        return round(self.score_b - self.score_a, _DIGITS)

    @property
    def flip(self) -> int:
        """1: gained (only B succeeded), -1: lost (only A did), 0: both or neither."""
        return self.success_b - self.success_a


class LeastDetectable(Struct, frozen=True, kw_only=True):
    """The smallest true difference that this many pairs show in 4 of 5 cases; None where no difference can be shown."""

    difference: float | None
    discordance: float  # mean squared difference of a pair; for scores 0 and 1 the share of tasks that differ
    assumed: bool  # whether that is `ASSUMED_DISCORDANCE`, for want of any


class Comparison(Struct, frozen=True, kw_only=True):
    """B against A over the pairs; a positive difference is in favour of B. Every task weighs the same."""

    pairs: int
    tasks: int  # fewer than pairs, where tasks were repeated
    mean_a: float
    mean_b: float
    difference: float
    ci95: Interval
    higher: int  # tasks with a higher score in B
    lower: int
    p_score: float  # of higher against lower
    gained: int  # tasks with more successes in B
    lost: int
    p_success: float  # of gained against lost
    least: LeastDetectable
    conclusion: Conclusion


def compare(pairs: Sequence[Pair], rng: Random) -> Comparison:
    """Compare two runs over their pairs.

    Swapping the runs swaps the signs and nothing else. The order of the pairs matters only for the bootstrap's draws.

    Raises: ValueError, where there are no pairs.
    """
    if not pairs:
        raise ValueError("no pairs")
    units = _units(pairs)
    differences = [_mean([pair.difference for pair in unit]) for unit in units]
    higher, lower = _signs(differences)
    gained, lost = _signs([sum(pair.flip for pair in unit) for unit in units])
    p_score = exact_p(higher, lower)
    ci95 = bootstrap(differences, rng)
    return Comparison(
        pairs=len(pairs),
        tasks=len(units),
        mean_a=_mean([_mean([pair.score_a for pair in unit]) for unit in units]),
        mean_b=_mean([_mean([pair.score_b for pair in unit]) for unit in units]),
        difference=_mean(differences),
        ci95=ci95,
        higher=higher,
        lower=lower,
        p_score=p_score,
        gained=gained,
        lost=lost,
        p_success=exact_p(gained, lost),
        least=_least(differences),
        conclusion=_conclusion(ci95, higher - lower, p_score),
    )


def _units(pairs: Sequence[Pair]) -> list[list[Pair]]:
    """The pairs of each task together, in the order of the first of each."""
    units: list[list[Pair]] = []
    known: dict[str, list[Pair]] = {}
    for pair in pairs:
        if pair.task is not None and pair.task in known:
            known[pair.task].append(pair)
            continue
        units.append([pair])
        if pair.task is not None:
            known[pair.task] = units[-1]
    return units


def _mean(values: Sequence[float]) -> float:
    return round(math.fsum(values) / len(values), _DIGITS)


def exact_p(ups: int, downs: int) -> float:
    """Two-sided exact test (McNemar's, by the binomial distribution): how often chance alone, a fair coin per task that
    changed, splits them at least this unevenly. 1 where nothing changed."""
    count, fewer = ups + downs, min(ups, downs)
    ways = term = 1
    for i in range(fewer):
        term = term * (count - i) // (i + 1)
        ways += term
    return min(1.0, 2 * ways / 2**count)


def bootstrap(differences: Sequence[float], rng: Random) -> Interval:
    """95 % percentile interval of the mean difference, over at most 2,000 resamples of the tasks.

    A resample first draws how many of its tasks differ at all, then which: tasks that do not differ need no draws. Where
    very many differ, fewer resamples are drawn, and 400 at least.
    """
    count = len(differences)
    changed = [difference for difference in differences if difference]
    if not changed:
        return Interval(low=0.0, high=0.0)
    resamples = max(_LEAST_RESAMPLES, min(_RESAMPLES, _DRAWS // len(changed)))
    sizes = _binomials(count, len(changed), resamples, rng)
    means = [sum(rng.choices(changed, k=size)) / count for size in sizes]
    return Interval(low=percentile(means, 0.025), high=percentile(means, 0.975))


def least_detectable(pairs: int, discordance: float) -> float | None:
    """The true difference of the means that a two-sided test at 5 % finds with 80 % power; None for too few pairs.

    By the normal approximation for paired data. A difference cannot be larger than the share of tasks that differ, so
    for large ones the discordance grows with it.
    """
    if pairs < _LEAST_PAIRS:
        return None

    def is_found(difference: float) -> bool:
        spread = max(discordance, difference)
        needed = _Z_LEVEL * math.sqrt(spread) + _Z_POWER * math.sqrt(spread - difference * difference)
        return difference * math.sqrt(pairs) >= needed

    low, high = 0.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if is_found(middle) else (middle, high)
    return high


def _signs(values: Sequence[float]) -> tuple[int, int]:
    """How many are above and how many below 0."""
    return sum(value > 0 for value in values), sum(value < 0 for value in values)


def _binomials(count: int, changed: int, draws: int, rng: Random) -> list[int]:
    """Draw from the binomial distribution of `count` tasks of which a share of `changed / count` differs."""
    if changed == count:
        return [count] * draws
    yes, no = math.log(changed / count), math.log1p(-changed / count)
    ways = math.lgamma(count + 1)
    weights = [
        math.exp(ways - math.lgamma(k + 1) - math.lgamma(count - k + 1) + k * yes + (count - k) * no)
        for k in range(count + 1)
    ]
    return rng.choices(range(count + 1), weights, k=draws)


def _least(differences: Sequence[float]) -> LeastDetectable:
    seen = math.fsum(difference * difference for difference in differences) / len(differences)
    discordance = seen or ASSUMED_DISCORDANCE
    return LeastDetectable(
        difference=least_detectable(len(differences), discordance), discordance=discordance, assumed=not seen
    )


def _conclusion(ci95: Interval, balance: int, p: float) -> Conclusion:
    if p < LEVEL and balance > 0 and ci95.low > 0:
        return Conclusion.BETTER
    if p < LEVEL and balance < 0 and ci95.high < 0:
        return Conclusion.WORSE
    return Conclusion.UNCLEAR
