"""What a run would take in time and money on several numbers of workers. Pure.

All workers are paid for until the last one ends, as those of a pool are that stays; a run that makes its own pool ends
a worker as soon as there is no work for it, and costs a little less.
"""

from __future__ import annotations

import math

from msgspec import Struct

from evalfleet.azure.quota import Usages, missing
from evalfleet.azure.sizes import Size
from evalfleet.pools.cloud.problems import MissingQuota

COUNTS = (1, 5, 10, 20, 40)


class Work(Struct, frozen=True, kw_only=True):
    """What is to be done."""

    tasks: int
    minutes_per_task: float
    overhead_minutes: float  # from the request for a machine to its first task, and after its last


class Terms(Struct, frozen=True, kw_only=True):
    """What it is done on."""

    size: Size
    spot: bool = False
    usd_per_hour: float | None  # None: not known
    usages: Usages | None = None  # None: the quota was not asked for


class Estimate(Struct, frozen=True, kw_only=True):
    """One line: so many workers, so much time and money."""

    workers: int
    minutes: float
    vm_hours: float
    usd: float | None
    missing: tuple[MissingQuota, ...] | None


def estimate(work: Work, workers: int, terms: Terms) -> Estimate:
    """Return time, machine hours and dollars for one number of workers; more workers than tasks are of no use."""
    useful = min(workers, work.tasks)
    minutes = work.overhead_minutes + math.ceil(work.tasks / useful) * work.minutes_per_task
    hours = useful * minutes / 60
    usages = terms.usages
    return Estimate(
        workers=workers,
        minutes=minutes,
        vm_hours=hours,
        usd=None if terms.usd_per_hour is None else hours * terms.usd_per_hour,
        missing=None if usages is None else tuple(missing(usages, terms.size, useful, spot=terms.spot)),
    )


def counts(wanted: int, tasks: int) -> list[int]:
    """Return the numbers of workers to compare: the wanted one among the usual ones, none of those above the tasks."""
    return sorted({wanted, *(count for count in COUNTS if count <= tasks)})
