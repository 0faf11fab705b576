"""Shared by the steering commands: the run, and the answer in words or as JSON."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from evalfleet import config
from evalfleet.cli.shared.document import print_answer
from evalfleet.errors import Refused
from evalfleet.model import Run, TaskState
from evalfleet.operations.home import opened_for_writing
from evalfleet.operations.runs.steer import Changed, ChangedTasks
from evalfleet.store.store import Store

C = TypeVar("C", bound=Changed)


def changed(
    home: str | None, run: str, change: Callable[[Store, Run], C], told: Callable[[C], str], *, as_json: bool
) -> int:
    """Change a run, and print the result."""
    with opened_for_writing(config.load(home).home, run) as (store, found):
        answer = change(store, found)
    print_answer(as_json, answer, told(answer))
    return 0


def changed_tasks(
    home: str | None,
    run: str,
    change: Callable[[Store, Run], ChangedTasks],
    keys: tuple[str, ...],
    done: str,
    *,
    as_json: bool,
    hint: str = "",
) -> int:
    """Change tasks of a run, and print which changed, which will and which do not. Exit code 3 if none does."""
    with opened_for_writing(config.load(home).home, run) as (store, found):
        answer = change(store, found)
        states = {key: store.tasks.get(found.id, key).state for key in keys}
    later = [key for key in answer.tasks if states[key] is TaskState.RUNNING]
    text = f"{done}: {', '.join(key for key in answer.tasks if key not in later) or 'nothing'}"
    if later:
        text += f"; when its attempt is over, unless that brings a verdict: {', '.join(later)}"
    if answer.tasks and not answer.driven and hint:
        text += f"; {hint.format(run=answer.run)}"
    if left := [f"{key} is {states[key]}" for key in keys if key not in answer.tasks]:
        text += f"; not affected: {', '.join(left)}"
    print_answer(as_json, answer, text)
    return 0 if answer.tasks else Refused.exit_code
