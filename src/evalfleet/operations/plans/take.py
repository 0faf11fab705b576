"""Taking a plan: which of the stored ones is meant, and the machines that it asks for."""

from __future__ import annotations

import os
from collections import Counter

from msgspec import Struct
from msgspec.structs import replace

from evalfleet.answers.plans import Plan
from evalfleet.errors import InputError
from evalfleet.model import TaskSpec
from evalfleet.report.plans import plan_answer
from evalfleet.store.reader import StoreReader
from evalfleet.taskfile import Submission

_LOOKED_AT = 200


class PlannedMachines(Struct, frozen=True, kw_only=True):
    """What a pool is made with."""

    workers: int
    sizes: tuple[str, ...]
    regions: tuple[str, ...]
    spot: bool
    mix: dict[str, int] | None  # machines of each size; None: all are of one size


def plan_for(store: StoreReader, source: str, tasks: int, plan_id: str | None) -> Plan:
    """The plan that a run shall follow.

    Args:
        source: the task file or the benchmark of the run.
        plan_id: None: the newest plan of the same source and number of tasks that no run follows.

    Raises InputError: there is none, or the plan is about other tasks. NotFound.
    """
    name = os.path.basename(source)
    if plan_id is not None:
        found = plan_answer(store, store.plans.get(plan_id))
        if found.tasks != tasks:
            raise InputError(f"plan {plan_id} is for {found.tasks} tasks of {found.source}, and the run has {tasks}")
        return found
    for one in store.plans.newest(_LOOKED_AT):
        if one.run_id is None and one.content["source"] == name and one.content["tasks"] == tasks:
            return plan_answer(store, one)
    raise InputError(f"there is no plan for {tasks} tasks of {name} yet; `evalfleet plan {source}` makes one")


def needing(submission: Submission, plan: Plan) -> Submission:
    """The same tasks with the memory that the plan has counted with: else large tasks would go to its small machines."""

    def needs(task: TaskSpec) -> TaskSpec:
        memory_mb = max(task.requests.memory_mb, plan.memory_mb.get(task.domain, 0))
        return replace(task, requests=replace(task.requests, memory_mb=memory_mb))

    return replace(submission, tasks=tuple(map(needs, submission.tasks))) if plan.memory_mb else submission


def machines_of(plan: Plan) -> PlannedMachines:
    groups = plan.option.groups
    by_size = Counter[str]()
    for group in groups:
        by_size[group.size] += group.machines
    return PlannedMachines(
        workers=plan.option.workers,
        sizes=tuple(by_size),
        regions=tuple(dict.fromkeys(group.region for group in groups)),
        spot=groups[0].spot,
        mix=dict(by_size) if len(by_size) > 1 else None,
    )
