"""The tasks of a run: filtered, sorted, each with its state."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import Any

from msgspec import Struct

from evalfleet.answers.task_result import TaskResult
from evalfleet.errors import InputError
from evalfleet.model import Run, TaskState
from evalfleet.report.summary import task_result
from evalfleet.store.reader import StoreReader
from evalfleet.validation import sentence, suggestion

FAILED = (TaskState.FAILED, TaskState.HELD)
"""The states of tasks that have ended without a verdict."""


class TaskFilter(Struct, frozen=True, kw_only=True):
    """Which tasks of a run are wanted. The default is all of them, in the order of submission."""

    states: tuple[TaskState, ...] = ()
    domain: str | None = None  # a pattern such as "click*"
    sort: str = "number"  # a word of SORTS, with "-" before it for the reverse


SORTS: dict[str, Callable[[TaskResult], Any]] = {
    "number": lambda task: task.number,
    "key": lambda task: task.key,
    "domain": lambda task: (task.domain, task.number),
    "state": lambda task: (task.state, task.number),
    "score": lambda task: (-1.0 if task.score is None else task.score, task.number),
    "duration": lambda task: (task.duration_s or 0.0, task.number),
    "attempts": lambda task: (task.attempts, task.number),
}


def task_filter(
    *, states: Sequence[str] = (), failed: bool = False, domain: str | None = None, sort: str = "number"
) -> TaskFilter:
    """The filter that a person asks for. Raises InputError for an unknown word."""
    known = [str(state) for state in TaskState]
    wrong = next((word for word in states if word not in known), None)
    if wrong is not None:
        raise InputError(sentence(f"there is no state {wrong!r}{suggestion(wrong, known)}"))
    if sort.removeprefix("-") not in SORTS:
        raise InputError(sentence(f"tasks cannot be sorted by {sort!r}{suggestion(sort, SORTS)}"))
    chosen = dict.fromkeys((*map(TaskState, states), *(FAILED if failed else ())))
    return TaskFilter(states=tuple(chosen), domain=domain, sort=sort)


def list_tasks(store: StoreReader, run: Run, wanted: TaskFilter) -> list[TaskResult]:
    """The tasks that match, as they stand now."""
    with store.snapshot():
        found = [task for task in map(task_result, store.tasks.result_rows(run.id)) if _matches(task, wanted)]
    return ordered(found, wanted)


def ordered(tasks: Sequence[TaskResult], wanted: TaskFilter) -> list[TaskResult]:
    """In the order that is asked for."""
    return sorted(tasks, key=SORTS[wanted.sort.removeprefix("-")], reverse=wanted.sort.startswith("-"))


def _matches(task: TaskResult, wanted: TaskFilter) -> bool:
    return (not wanted.states or task.state in wanted.states) and (
        wanted.domain is None or fnmatchcase(task.domain, wanted.domain)
    )
