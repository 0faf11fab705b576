"""The tasks that a plan is about: those of a task file or a benchmark. What only a run needs is not checked."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict, replace

from evalfleet.config import Settings
from evalfleet.core.plan.durations import Job
from evalfleet.errors import InputError
from evalfleet.taskfile import Submission

SELECTS = ("agent", "model", "tasks", "domain", "task", "seed", "repeat", "options", "json_name", "waa_root")
"""The options of a benchmark that decide which tasks there are, and which earlier runs tell of them."""


class Planned(Struct, frozen=True, kw_only=True):
    """What is to be planned."""

    source: str
    name: str  # of the run, whose earlier runs tell most
    jobs: tuple[Job, ...]
    kvm: bool = False
    attempts: int = 3


def is_benchmark(source: str) -> bool:
    """Whether `run` would take the word for a benchmark: a file of that name takes precedence."""
    return source != "-" and os.sep not in source and "." not in source and not os.path.exists(source)


def unnamed(tasks: int) -> Planned:
    """A number of unknown tasks."""
    jobs = tuple(Job(key=f"task {number}") for number in range(1, tasks + 1))
    return Planned(source=f"{tasks} tasks", name="", jobs=jobs, kvm=True)


def jobs_of_submission(source: str, found: Submission) -> Planned:
    jobs = tuple(Job(key=task.key, domain=task.domain, memory_mb=task.requests.memory_mb) for task in found.tasks)
    return Planned(source=os.path.basename(source), name=found.name, jobs=jobs, attempts=found.policy.attempts)


def jobs_of_benchmark(name: str, given: Mapping[str, Any], settings: Settings) -> Planned:
    """The episodes that `run` would submit. Needs neither an agent nor what the benchmark needs to run.

    Args:
        given: `BenchmarkOptions` by their names, as far as they change a plan: those of `SELECTS`.

    Raises InputError: unknown benchmark, option, task or domain.
    """
    from evalfleet.benchmarks import registry
    from evalfleet.benchmarks.base import ChoosesTasks, OwnAgents, Selection
    from evalfleet.benchmarks.selection import choose
    from evalfleet.operations.runs import submit

    submit.require_benchmark(name)
    wrong = next((word for word in given if word not in SELECTS), None)
    if wrong is not None:
        raise InputError(f"{wrong}: changes nothing in a plan; options that do: {', '.join(SELECTS[:-2])}")
    benchmark = registry.find(name, settings)
    own = isinstance(benchmark, OwnAgents)
    options = submit.benchmark_options(given)
    agent = options.agent or (benchmark.agents[0] if own else "random")
    values = asdict(replace(options, agent=agent, options=submit.own_options(benchmark, options)))
    selection = Selection(**values, remote=True)
    episodes = (
        benchmark.chosen(selection)
        if isinstance(benchmark, ChoosesTasks)
        else choose(name, benchmark.catalogue(), selection)
    )
    jobs = tuple(
        # As in `run`: what plays its tasks itself has no seeds, only trials.
        Job(key=one.task.name if own and not one.seed else one.key, domain=one.task.domain)
        for one in episodes
    )
    run_name = str(benchmark.settings(selection).get("name", name)) if options.agent else name
    return Planned(source=name, name=run_name, jobs=jobs, kvm=registry.needs_kvm(name))
