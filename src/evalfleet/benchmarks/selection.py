"""The selection of episodes from a benchmark's catalogue. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from fnmatch import fnmatchcase

from msgspec import Struct

from evalfleet.benchmarks.base import Selection, TaskInfo
from evalfleet.errors import InputError
from evalfleet.validation import quoted, sentence, suggestion

ORACLE = "oracle"
_KEY = re.compile(r"(?P<task>.+)_(?P<seed>\d{1,9})")


class Chosen(Struct, frozen=True, kw_only=True):
    """One episode: a task and its seed."""

    task: TaskInfo
    seed: int

    @property
    def key(self) -> str:
        return f"{self.task.name}_{self.seed}"


def choose(benchmark: str, catalogue: Sequence[TaskInfo], selection: Selection) -> list[Chosen]:
    """Return the episodes that fit, in the catalogue's order.

    Raises:
        InputError: an unknown task or domain, nothing left, more wanted than there are, or a task named that the
            oracle has no solution for.
    """
    wanted = _named(benchmark, catalogue, selection) if selection.task else {task.name: None for task in catalogue}
    fitting = [task for task in catalogue if task.name in wanted and _in_domain(task, selection.domain)]
    if not fitting:
        raise InputError(_no_domain(catalogue, selection))
    if selection.agent == ORACLE:
        fitting = _solvable(benchmark, fitting, catalogue, selection)
    if selection.tasks is not None:
        if selection.tasks > len(fitting):
            whose = " that the oracle can solve" if selection.agent == ORACLE else ""
            raise InputError(f"--tasks {selection.tasks}: only {len(fitting)} tasks fit{whose}; ask for fewer.")
        fitting = _spread(fitting, selection.tasks)
    seeds = range(selection.seed, selection.seed + selection.repeat)
    return [Chosen(task=task, seed=seed) for task in fitting for seed in wanted[task.name] or seeds]


def named(key: str, known: Collection[str]) -> tuple[str, int | None] | None:
    """Return the task that a person named, and the seed where it is an episode's key; None if there is none such."""
    if key in known:
        return key, None
    match = _KEY.fullmatch(key)
    return (match["task"], int(match["seed"])) if match and match["task"] in known else None


def _named(benchmark: str, catalogue: Sequence[TaskInfo], selection: Selection) -> dict[str, list[int] | None]:
    """Return the named tasks, each with the seeds that were named with it, or None for the run's own."""
    known = {task.name for task in catalogue}
    wanted: dict[str, list[int] | None] = {}
    for key in dict.fromkeys(selection.task):
        found = named(key, known)
        if found is None:
            match = _KEY.fullmatch(key)
            name = match["task"] if match else key
            near = suggestion(name, known)
            advice = near if near.endswith("?") else f"; `evalfleet benchmarks {benchmark}` lists the tasks"
            raise InputError(sentence(f"--task: {benchmark} has no task {quoted(name)}{advice}"))
        task, seed = found
        if seed is None:
            wanted[task] = None
            continue
        seeds = wanted.setdefault(task, [])
        if seeds is not None and seed not in seeds:
            seeds.append(seed)
    return wanted


def _in_domain(task: TaskInfo, pattern: str | None) -> bool:
    return pattern is None or fnmatchcase(task.domain, pattern)


def _no_domain(catalogue: Sequence[TaskInfo], selection: Selection) -> str:
    domains = sorted({task.domain for task in catalogue})
    if selection.task:
        return f"none of the named tasks is in a domain that matches {quoted(selection.domain or '')}."
    pattern = selection.domain or ""
    return sentence(f"--domain: no domain matches {quoted(pattern)}{suggestion(pattern, domains)}")


def _solvable(
    benchmark: str, fitting: list[TaskInfo], catalogue: Sequence[TaskInfo], selection: Selection
) -> list[TaskInfo]:
    solvable = [task for task in fitting if task.oracle]
    unsolvable = [task.name for task in fitting if not task.oracle]
    if unsolvable and (selection.task or not solvable):
        shown = ", ".join(unsolvable[:3]) + (", …" if len(unsolvable) > 3 else "")
        raise InputError(
            f"the oracle has no solution for {shown}; it has one for {sum(task.oracle for task in catalogue)} of "
            f"{len(catalogue)} tasks, which `evalfleet benchmarks {benchmark}` lists. Choose others, or another agent."
        )
    return solvable


def _spread(tasks: list[TaskInfo], count: int) -> list[TaskInfo]:
    """Pick so many at even distances, so that a few tasks still come from many domains."""
    return [tasks[index * len(tasks) // count] for index in range(count)]
