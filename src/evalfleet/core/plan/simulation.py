"""One run on one fleet, played through in numbers: when it ends, and what it costs. Pure; `rng` is an argument.

The rules are those of the engine: a pull queue with the longest task first, at most three attempts in flight until the first
sign of health, a task that fails or loses its machine waits again, a spot machine that is taken away is replaced, and a
machine without work is let go. `tests/unit/core/plan` plays the same runs with `core.placement` and `core.breaker`.
"""

from __future__ import annotations

import heapq
import random
from bisect import insort
from collections.abc import Sequence
from math import inf

from msgspec import Struct

from evalfleet.core.plan.durations import Durations, Job
from evalfleet.core.plan.fleet import Fleet, Starts, Tails
from evalfleet.duration import HOUR_S

_MOST_STARTS = 3


class Odds(Struct, frozen=True, kw_only=True):
    """What besides durations decides about time and money."""

    failed_attempts: float = 0.05  # share that gives no verdict and is tried again
    failed_after: float = 0.5  # of the task's duration, on average
    gap_s: float = 1.0  # of a worker between two attempts
    tails: Tails = Tails()
    end_s: float = 0.0  # from the last verdict to the end of the run
    slow_start: int = 3
    slow_start_s: float = 60.0
    attempts: int = 3
    model_usd: float = 0.0  # per verdict: what tasks report
    egress_usd: float = 0.0  # per verdict: bringing its files home
    slots: int = 1  # workers on each machine


class Work(Struct, frozen=True, kw_only=True):
    """What is to be done."""

    jobs: tuple[Job, ...]
    durations: Durations
    starts: Starts
    odds: Odds


class Spread(Struct, frozen=True, kw_only=True):
    """The mean of many draws, and the interval that 90 % of them lie in."""

    mean: float
    low: float
    high: float


class Forecast(Struct, frozen=True, kw_only=True):
    seconds: Spread
    usd: Spread
    machine_hours: float


class _Machines:
    """The machines of one run that is played, as lists by their number: this is the inner loop of every plan."""

    def __init__(self, fleet: Fleet, starts: Starts, rng: random.Random) -> None:
        offers = [group for group in fleet.groups for _ in range(group.machines)]
        self.memory = [group.offer.memory_mb or inf for group in offers]
        self.usd = [group.offer.total_usd_per_hour / HOUR_S for group in offers]
        self._rates = [group.reliability.evictions_per_hour / HOUR_S for group in offers]
        self._failed = [group.reliability.failed_starts for group in offers]
        self._starts, self._pace = starts, starts.pace(rng)
        self._rng = rng
        self.count = len(offers)
        self.paid_from = [0.0] * self.count
        self.last = [0.0] * self.count  # until when each had something to do, or became ready
        self.taken_at = [inf] * self.count
        self.paid_usd = self.paid_s = 0.0

    def start(self, index: int, at: float) -> float:
        """Order one; returns when it is ready. Starts that fail cost their time, and are made again."""
        rng, ready_at = self._rng, at
        for _ in range(_MOST_STARTS):
            wait_s, prepare_s = self._starts.draw(rng, self._pace)
            self.paid_from[index], ready_at = at + wait_s, at + wait_s + prepare_s
            if rng.random() >= self._failed[index]:
                break
            self._pay(index, prepare_s)
            at = ready_at
        rate = self._rates[index]
        self.taken_at[index] = self.paid_from[index] + rng.expovariate(rate) if rate > 0 else inf
        self.last[index] = ready_at
        return ready_at

    def end(self, index: int, at: float) -> None:
        """It is gone, or let go."""
        self._pay(index, max(0.0, at - self.paid_from[index]))

    def _pay(self, index: int, seconds: float) -> None:
        self.paid_s += seconds
        self.paid_usd += seconds * self.usd[index]


def play(
    work: Work, seconds: Sequence[float], order: Sequence[int], fleet: Fleet, rng: random.Random
) -> tuple[float, float, float]:
    """Play one run.

    Args:
        seconds: of each job, as one draw has it, in that order.
        order: the jobs by their number, the one that starts last first.

    Returns when it ends, in seconds, what it costs, and its machine hours.
    """
    odds = work.odds
    machines = _Machines(fleet, work.starts, rng)
    queues = _queues(work.jobs, order, max(machines.memory, default=0))
    verdicts = sum(map(len, queues.values()))
    finish = _drain(machines, queues, seconds, odds, rng) + odds.end_s
    for index, tail_s in enumerate(odds.tails.draw(rng, machines.count)):
        # One that was never needed goes when it is ready, or when the run ends.
        machines.end(index, min(machines.last[index], finish) + tail_s)
    images = {(group.offer.region, group.offer.image_usd_per_hour) for group in fleet.groups}
    usd = machines.paid_usd + sum(usd for _, usd in images) * finish / HOUR_S
    return finish, usd + verdicts * (odds.model_usd + odds.egress_usd), machines.paid_s / HOUR_S


Queue = list[tuple[int, int]]  # place in the order and job; the next one is the last


def _drain(
    machines: _Machines, queues: dict[int, Queue], seconds: Sequence[float], odds: Odds, rng: random.Random
) -> float:
    """Give out all jobs; returns when the last verdict comes."""
    heap = [(machines.start(index, 0.0), index) for index in range(machines.count) for _ in range(odds.slots)]
    heapq.heapify(heap)
    uniform, replace, pop = rng.random, heapq.heapreplace, heapq.heappop
    taken_at, last, memory = machines.taken_at, machines.last, machines.memory
    only = next(iter(queues.values())) if len(queues) == 1 and min(memory) >= next(iter(queues)) else None
    tries: dict[int, int] = {}
    begun, healthy_at, finish = 0, inf, 0.0
    while heap:
        at, index = heap[0]
        if at < healthy_at and begun >= odds.slow_start:
            replace(heap, (healthy_at, index))
            continue
        queue = only if only is not None else _longest(queues, memory[index])
        if not queue:
            pop(heap)
            continue
        place, job = entry = queue.pop()
        length = seconds[place]
        failed = uniform() < odds.failed_attempts and tries.get(job, 0) < odds.attempts
        if failed:
            length *= 2 * odds.failed_after * uniform()
        end = at + length
        begun += 1
        if at < healthy_at:
            healthy_at = min(healthy_at, at + min(odds.slow_start_s, length))
        if end > taken_at[index]:
            end = max(at, taken_at[index])
            machines.end(index, end)
            insort(queue, entry)
            replace(heap, (machines.start(index, end), index))
            continue
        last[index] = max(last[index], end)
        if failed:
            tries[job] = tries.get(job, 0) + 1
            insort(queue, entry)
        else:
            finish = max(finish, end)
        replace(heap, (end + odds.gap_s, index))
    return finish


def _queues(jobs: Sequence[Job], order: Sequence[int], most_mb: float) -> dict[int, Queue]:
    """The waiting jobs by the memory that they need. What no machine holds is left out: the engine holds such tasks."""
    found: dict[int, Queue] = {}
    for place, job in enumerate(order):
        need = jobs[job].memory_mb
        if need <= most_mb:
            found.setdefault(need, []).append((place, job))
    return found


def _longest(queues: dict[int, Queue], memory: float) -> Queue | None:
    """Of the queues that fit, the one whose next job comes first."""
    fitting = [queue for need, queue in queues.items() if queue and need <= memory]
    return max(fitting, key=lambda queue: queue[-1][0], default=None)


def order_of(durations: Durations) -> list[int]:
    """The jobs by number, the one that starts last first; those of equal length in the order of the file."""
    expected = durations.expected
    return sorted(range(len(expected)), key=lambda job: (expected[job], -job))


class Draws:
    """Draws of durations that all options share: their difference is that of the fleets, not of luck."""

    def __init__(self, work: Work, seed: int) -> None:
        self._work = work
        self._seed = seed
        self._order = order_of(work.durations)
        self._rng = random.Random(seed)
        self._drawn: list[list[float]] = []

    def forecast(self, fleet: Fleet, draws: int) -> Forecast:
        """What the run takes on that fleet."""
        while len(self._drawn) < draws:
            drawn = self._work.durations.draw(self._rng)
            self._drawn.append([drawn[job] for job in self._order])
        rng = random.Random(f"{self._seed} {fleet.workers}")
        played = [play(self._work, seconds, self._order, fleet, rng) for seconds in self._drawn[:draws]]
        times, costs, hours = (sorted(values) for values in zip(*played, strict=True))
        return Forecast(seconds=spread(times), usd=spread(costs), machine_hours=sum(hours) / len(hours))


def spread(values: Sequence[float]) -> Spread:
    """Of sorted values."""
    last = len(values) - 1
    return Spread(mean=sum(values) / len(values), low=values[round(0.05 * last)], high=values[round(0.95 * last)])
