"""How long the tasks of a run will take, learned from earlier runs. Pure.

Each duration is a key's own typical length, times a factor of the run (a slow model slows all tasks alike), times a factor
of the attempt. All three are uncertain: a key that was seen once is less certain than one that was seen ten times, and
a key that was never seen takes after its domain. Without any history the stated prior stands for all of it.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Sequence
from statistics import fmean

from msgspec import Struct

from evalfleet.core.plan.pace import pace_of


class Job(Struct, frozen=True, kw_only=True):
    """One task to be done."""

    key: str
    domain: str = ""
    memory_mb: int = 0


class Sample(Struct, frozen=True, kw_only=True):
    """What one task took in an earlier run."""

    key: str
    domain: str
    run: str
    seconds: float  # that it had a worker
    reported_usd: float = 0.0


class Prior(Struct, frozen=True, kw_only=True):
    """What is assumed where no history tells."""

    seconds: float = 480.0  # of a task
    between_keys: float = 0.5  # standard deviations of the logarithm of a duration: from key to key,
    between_attempts: float = 0.25  # from attempt to attempt of one key,
    between_runs: float = 0.04  # and from run to run
    of_the_mean: float = 0.25  # how far off `seconds` itself may be; only where there is no history at all


_LEAST_S = 1e-3


class Durations:
    """The lengths of jobs: what is expected, and draws of what may come."""

    def __init__(self, jobs: Sequence[Job], samples: Iterable[Sample], prior: Prior) -> None:
        logs: dict[str, list[float]] = {}
        domains: dict[str, str] = {}
        residuals: list[float] = []
        by_run: dict[str, list[float]] = {}
        seen = list(samples)
        for one in seen:
            logs.setdefault(one.key, []).append(math.log(max(_LEAST_S, one.seconds)))
            domains[one.key] = one.domain
        means = {key: fmean(values) for key, values in logs.items()}
        for one in seen:
            if len(logs[one.key]) > 1:
                off = math.log(max(_LEAST_S, one.seconds)) - means[one.key]
                by_run.setdefault(one.run, []).append(off)
        run_effects = {run: fmean(values) for run, values in by_run.items()}
        for one in seen:
            n = len(logs[one.key])
            if n > 1:  # a mean of few follows each of them: what is left is too small by this factor
                off = math.log(max(_LEAST_S, one.seconds)) - means[one.key] - run_effects[one.run]
                residuals.append(off * math.sqrt(n / (n - 1)))
        self.known = sum(job.key in means for job in jobs)
        self._residuals = residuals if len(residuals) >= 8 else []
        self._between_attempts = _deviation(residuals, prior.between_attempts)
        self._between_runs = pace_of(list(run_effects.values()), prior.between_runs)
        self._of_the_mean = 0.0 if means else prior.of_the_mean
        self._centres, self._errors = self._places(jobs, logs, means, domains, prior)

    def _places(
        self,
        jobs: Sequence[Job],
        logs: dict[str, list[float]],
        means: dict[str, float],
        domains: dict[str, str],
        prior: Prior,
    ) -> tuple[list[float], list[float]]:
        by_domain: dict[str, list[float]] = {}
        for key, mean in means.items():
            by_domain.setdefault(domains[key], []).append(mean)
        noise = (prior.between_keys**2 + prior.between_attempts**2 + prior.between_runs**2 + prior.of_the_mean**2) / 2
        every = fmean(means.values()) if means else math.log(prior.seconds) - noise  # so that the mean is as stated
        usual = _deviation([mean - every for mean in means.values()], prior.between_keys)
        centres: list[float] = []
        errors: list[float] = []
        for job in jobs:
            if job.key in means:
                centres.append(means[job.key])
                errors.append(self._between_attempts / math.sqrt(len(logs[job.key])))
            else:
                alike = by_domain.get(job.domain)
                centres.append(fmean(alike) if alike else every)
                errors.append(usual)
        return centres, errors

    @property
    def expected(self) -> list[float]:
        """The order of the queue follows these: the longest first."""
        return [math.exp(centre) for centre in self._centres]

    def draw(self, rng: random.Random) -> list[float]:
        """One possible run: the seconds of each job, in the order of the jobs."""
        gauss, uniform, exp = rng.gauss, rng.random, math.exp
        run = self._between_runs.draw(rng) + gauss(0.0, self._of_the_mean)
        residuals, count, deviation = self._residuals, len(self._residuals), self._between_attempts
        if count:
            return [
                exp(centre + run + gauss(0.0, error) + residuals[int(uniform() * count)])
                for centre, error in zip(self._centres, self._errors, strict=True)
            ]
        return [
            exp(centre + run + gauss(0.0, error) + gauss(0.0, deviation))
            for centre, error in zip(self._centres, self._errors, strict=True)
        ]


def _deviation(values: Sequence[float], otherwise: float) -> float:
    """Around 0; what is assumed where few values tell."""
    return math.sqrt(fmean(value * value for value in values)) if len(values) >= 8 else otherwise
