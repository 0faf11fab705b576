"""Plans: made from history and prices before a run, and looked at after it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import Any

import anyio.to_thread

from evalfleet import config
from evalfleet.answers.plans import Plan
from evalfleet.api.tasks import Folder
from evalfleet.errors import InputError, NotFound
from evalfleet.operations.plans import jobs, make
from evalfleet.report.reader import opened
from evalfleet.store.open import open_store
from evalfleet.taskfile import load
from evalfleet.taskfile.part import Part, part_of
from evalfleet.validation import seconds


def plan(
    source: Folder,
    *,
    deadline: str | float | None = None,
    budget_usd: float | None = None,
    workers: int | None = None,
    size: Sequence[str] = (),
    regions: Sequence[str] = (),
    spot: bool | None = None,
    memory_gb: Mapping[str, float] | None = None,
    minutes_per_task: float | None = None,
    start_minutes: float | None = None,
    image: bool = False,
    price: float | None = None,
    seed: int = 0,
    home: Folder | None = None,
    **benchmark: Any,
) -> Plan:
    """Plan a run on rented machines, and store the plan: what `evalfleet plan` prints. `evalfleet run --plan ID` takes it.

    Args:
        source: a task file, or the name of a benchmark.
        deadline: the run shall end in this time: "1h", or seconds.
        budget_usd: the run shall cost at most this.
        workers: plan for this many only; else several are compared.
        size: only these sizes.
        regions: only these regions.
        spot: only spot machines, or none of them; None compares both.
        memory_gb: what each task of a domain needs, by domain.
        minutes_per_task: assume this mean instead of the history.
        start_minutes: assume that a machine takes this long to start.
        image: count a golden image in each region.
        price: dollars per machine and hour, in place of the price list's.
        seed: of the simulation.
        home: where everything is kept; else EVALFLEET_HOME, or ~/.evalfleet.
        benchmark: which episodes: `agent`, `model`, `tasks`, `domain`, `task`, `repeat`, `options`.

    Raises InputError, NotFound, StoreError.
    """
    machine = config.load(home)
    planned = _jobs(os.fspath(source), benchmark, machine)
    asked = make.PlanRequest(
        deadline_s=seconds("deadline", deadline),
        budget_usd=budget_usd,
        workers=workers,
        size=tuple(size),
        regions=tuple(regions),
        spot=spot,
        memory=make.in_mb(memory_gb or {}),
        minutes_per_task=minutes_per_task,
        start_minutes=start_minutes,
        image=image,
        price=price,
        seed=seed,
    )
    with closing(open_store(machine.home)) as store:
        return make.make(machine, store, planned, asked)


def _jobs(source: str, benchmark: Mapping[str, Any], machine: config.Settings) -> jobs.Planned:
    if jobs.is_benchmark(source):
        return jobs.jobs_of_benchmark(source, benchmark, machine)
    other = next((name for name in benchmark if name not in Part.__struct_fields__), None)
    if other is not None:
        raise InputError(f"{other}: is for benchmarks only, and {source!r} is a task file")
    return jobs.jobs_of_submission(source, part_of(load(source), Part(**benchmark)))


async def plan_async(source: Folder, **asked: Any) -> Plan:
    """`plan` for asyncio: it takes about a second, and asks the cloud for the quota where an account is set."""
    return await anyio.to_thread.run_sync(partial(plan, source, **asked))


def show_plan(plan: str, *, home: Folder | None = None) -> Plan:
    """One plan, with what became of the run that followed it. Raises NotFound."""
    with opened(config.load(home).home) as reader:
        if reader is None:
            raise NotFound(f"there is no plan {plan!r}; this home has none yet")
        return make.show(reader, plan)


def list_plans(*, home: Folder | None = None) -> list[Plan]:
    """The newest plans first, each with what became of the run that followed it."""
    with opened(config.load(home).home) as reader:
        return [] if reader is None else make.newest(reader)
