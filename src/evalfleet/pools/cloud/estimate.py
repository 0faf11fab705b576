"""What a run would take in time and money on several numbers of workers. Pure.

All workers are paid for until the last one ends, as those of a pool are that stays; a run that makes its own pool ends
a worker as soon as there is no work for it, and costs a little less.
"""

from __future__ import annotations

import math

from msgspec import Struct

from evalfleet.answers.machines import Estimate
from evalfleet.pools.cloud.catalogue import Allowance

COUNTS = (1, 5, 10, 20, 40)


class Work(Struct, frozen=True, kw_only=True):
    """What is to be done."""

    tasks: int
    minutes_per_task: float
    overhead_minutes: float  # from the request for a machine to its first task, and after its last


def estimate(work: Work, workers: int, usd_per_hour: float | None, allowance: Allowance | None = None) -> Estimate:
    """Time, machine hours and dollars for one number of workers; more workers than tasks are of no use."""
    useful = min(workers, work.tasks)
    minutes = work.overhead_minutes + math.ceil(work.tasks / useful) * work.minutes_per_task
    hours = useful * minutes / 60
    return Estimate(
        workers=workers,
        minutes=minutes,
        vm_hours=hours,
        usd=None if usd_per_hour is None else hours * usd_per_hour,
        missing=None if allowance is None else allowance.missing(useful),
    )


def counts(wanted: int, tasks: int) -> list[int]:
    """Return the numbers of workers to compare: the wanted one among the usual ones, none of those above the tasks."""
    return sorted({wanted, *(count for count in COUNTS if count <= tasks)})
