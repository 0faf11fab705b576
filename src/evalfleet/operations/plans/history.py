"""What the store knows that a plan can be made from. Times are turned into those of the cloud's clock."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean

from msgspec import Struct

from evalfleet.core.breaker import Limits
from evalfleet.core.plan.durations import Job, Sample
from evalfleet.core.plan.fleet import Offer, Reliability, Start, StartPrior, Starts, Tails, reliability
from evalfleet.core.plan.pace import pace_of
from evalfleet.core.plan.simulation import Odds
from evalfleet.duration import HOUR_S
from evalfleet.store.plans import MachineRow
from evalfleet.store.reader import StoreReader

_MOST_RUNS = 10
_WEIGHT = 40  # attempts of history that count as much as the assumed share of failures
_GB = 1e9
_LEAST_STARTS = 3  # machines, below which what is assumed stands
_PACE = 0.25  # spread from run to run of the time that machines take to start, where few runs tell
_TAIL_PACE = 0.5  # the same of how long they are paid for after their last task


class History(Struct, frozen=True, kw_only=True):
    """Earlier runs of the same tasks, and the machines that they ran on."""

    samples: tuple[Sample, ...]
    runs: tuple[str, ...]  # the newest first
    machines: tuple[MachineRow, ...]
    starts: Starts
    odds: Odds
    collected_gb: float | None  # per verdict; None: no run tells
    speed: float

    def rates(self, offer: Offer, prior: StartPrior) -> Reliability:
        """Evictions and failed starts of that size in that region; where none was there, of all machines of its market."""
        alike = [one for one in self.machines if one.spot == offer.spot]
        same = [one for one in alike if one.size == offer.size and one.region == offer.region]
        found = same if len(same) >= 5 else alike
        return reliability(
            sum(one.taken for one in found),
            sum(one.allocated_s for one in found) * self.speed / HOUR_S,
            sum(one.ready_at is None and one.ended_at is not None for one in found),
            len(found),
            spot=offer.spot,
            prior=prior,
        )


def history_of(store: StoreReader, jobs: Sequence[Job], name: str, speed: float) -> History:
    """Read what earlier runs tell: those of the same name where there are some, else all with the same keys."""
    with store.snapshot():
        found = store.plans.task_history([job.key for job in jobs], name)
        if any(row["same"] for row in found):
            found = [row for row in found if row["same"]]
        samples = tuple(
            Sample(
                key=row["key"],
                domain=row["domain"],
                run=row["run_id"],
                seconds=row["worker_s"] * speed,
                reported_usd=row["reported_usd"],
            )
            for row in found
        )
        runs = tuple(dict.fromkeys(sample.run for sample in samples))[:_MOST_RUNS]
        machines = tuple(store.plans.machines())
        return History(
            samples=samples,
            runs=runs,
            machines=machines,
            starts=_starts(store, machines, speed),
            odds=_odds(store, runs, machines, samples, speed),
            collected_gb=_collected_gb(store, runs),
            speed=speed,
        )


def _starts(store: StoreReader, machines: Sequence[MachineRow], speed: float) -> Starts:
    """From the begin of a run to the first work on a machine that was made for it; of others, from the order on."""
    begun = {run: store.plans.run_history(run)["started_at"] for run in {one.run_id for one in machines if one.run_id}}
    found: list[Start] = []
    for one in machines:
        if one.ran_from is None or one.ready_at is None or one.taken:
            continue
        started_at = begun.get(one.run_id or "")
        own = started_at is not None and one.first_at is not None and started_at <= one.requested_at
        since = started_at if own and started_at is not None else one.requested_at
        until = one.first_at if own and one.first_at is not None else one.ready_at
        found.append(
            Start(
                wait_s=max(0.0, one.ran_from - since) * speed,
                prepare_s=max(0.0, until - one.ran_from) * speed,
                run=one.run_id or one.pool,
            )
        )
    if len(found) < _LEAST_STARTS:
        return Starts()
    by_run: dict[str, list[float]] = {}
    for start in found:
        by_run.setdefault(start.run, []).append(math.log(max(1e-3, start.wait_s + start.prepare_s)))
    means = [fmean(values) for values in by_run.values()]
    return Starts(samples=tuple(found), between_runs=pace_of(means, _PACE))


def _tails(machines: Sequence[MachineRow], speed: float) -> Tails:
    """Seconds at the whole price of a machine: its disk and address stay until it is deleted, too."""
    by_run: dict[str, list[float]] = {}
    for one in machines:
        if one.ran_from is None or one.last_at is None or one.ended_at is None or one.taken:
            continue
        price = one.usd_per_hour + one.kept_usd_per_hour
        paid_s = one.cost_usd(one.ended_at) * HOUR_S / price if price else one.allocated_s
        tail_s = max(1.0, (paid_s - (one.last_at - one.ran_from)) * speed)
        by_run.setdefault(one.run_id or one.pool, []).append(math.log(tail_s))
    if not by_run:
        return Tails()
    means = {run: fmean(logs) for run, logs in by_run.items()}
    factors = [math.exp(one - means[run]) for run, logs in by_run.items() for one in logs]
    return Tails(
        seconds=math.exp(fmean(means.values())),
        factors=tuple(factors),
        between_runs=pace_of(list(means.values()), _TAIL_PACE),
    )


def _odds(
    store: StoreReader, runs: Sequence[str], machines: Sequence[MachineRow], samples: Sequence[Sample], speed: float
) -> Odds:
    assumed = Odds(slow_start_s=Limits().slow_start_s * speed)
    if not runs:
        return assumed
    sums = [store.plans.run_history(run) for run in runs]
    attempts, failed = sum(row["attempts"] for row in sums), sum(row["failed"] for row in sums)
    usual_s = fmean(sample.seconds for sample in samples)
    failed_s = sum(row["failed_s"] for row in sums) * speed
    gaps = [gap for run in runs for gap in store.plans.gaps(run)]
    ends = [
        max(0.0, row["ended_at"] - row["last_verdict_at"])
        for row in sums
        if row["ended_at"] is not None and row["last_verdict_at"] is not None
    ]
    return Odds(
        failed_attempts=(failed + assumed.failed_attempts * _WEIGHT) / (attempts + _WEIGHT),
        failed_after=min(2.0, failed_s / failed / usual_s) if failed else assumed.failed_after,
        gap_s=fmean(sorted(gaps)[: max(1, len(gaps) * 9 // 10)]) * speed if gaps else assumed.gap_s,
        tails=_tails(machines, speed),
        end_s=fmean(ends) * speed if ends else assumed.end_s,
        slow_start_s=assumed.slow_start_s,
        model_usd=fmean(sample.reported_usd for sample in samples),
    )


def _collected_gb(store: StoreReader, runs: Sequence[str]) -> float | None:
    found = [store.plans.collected(run) for run in runs[:3]]
    attempts = sum(count for _, count in found)
    return sum(size for size, _ in found) / attempts / _GB if attempts else None
