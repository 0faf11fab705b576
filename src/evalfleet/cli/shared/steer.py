"""What the steering commands share."""

from __future__ import annotations

import json
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

import click

from evalfleet import config
from evalfleet.errors import NotFound, Refused
from evalfleet.model import Run, TaskState, Verb
from evalfleet.operations.steer import ask_or_do
from evalfleet.store.base.store import Store
from evalfleet.store.database.sqlite import FILE, open_store


@contextmanager
def opened_for_writing(settings: config.Settings, text: str) -> Generator[tuple[Store, Run]]:
    """The store, and the run that `text` names. Makes no home where there is none."""
    if not (settings.home / FILE).exists():
        raise NotFound(f"there is no run in {settings.home} yet; `evalfleet run TASKS.toml` makes one")
    store = open_store(settings.home)
    try:
        yield store, store.find_run(text)
    finally:
        store.close()


def say(as_json: bool, answer: dict[str, Any], text: str) -> None:
    click.echo(json.dumps(answer) if as_json else text)


def steer_tasks(home: str | None, run: str, verb: Verb, keys: Sequence[str], done: str, *, as_json: bool) -> int:
    """Apply a verb to tasks of a run and say which were affected."""
    settings = config.load(home)
    with opened_for_writing(settings, run) as (store, found):
        owned, answer = ask_or_do(store, found, verb, {"keys": list(keys)})
        if owned is not None:
            store.leave(owned)
        tasks: list[str] = answer["tasks"]
        left = [key for key in keys if key not in tasks]
        later = [key for key in tasks if store.task(found.id, key).state is TaskState.RUNNING]
        at_once = [key for key in tasks if key not in later]
        text = f"{done}: {', '.join(at_once) or 'nothing'}"
        if later:
            text += f"; when its attempt is over, unless that brings a verdict: {', '.join(later)}"
        if tasks and owned is not None and verb is Verb.RELEASE:
            text += f"; `evalfleet resume {found.id}` drives the run"
        if left:
            states = ", ".join(f"{key} is {store.task(found.id, key).state}" for key in left)
            text += f"; not affected: {states}"
        say(as_json, {"run": found.id, **answer}, text)
    return 0 if tasks else Refused.exit_code
