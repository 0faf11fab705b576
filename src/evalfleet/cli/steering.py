"""What the steering commands share: act on a run directly where nobody drives it, else ask the one who does."""

from __future__ import annotations

import json
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

import click

from evalfleet import config
from evalfleet.engine.controller import owner_name
from evalfleet.engine.steering import steer
from evalfleet.errors import InputError, NotFound, Owned, Refused
from evalfleet.model import JsonObject, Run, Verb
from evalfleet.store.base import Store
from evalfleet.store.sqlite import FILE, open_store

_ANSWER_S = 10.0
_POLL_S = 0.02


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


def ask_or_do(store: Store, run: Run, verb: Verb, args: JsonObject) -> tuple[Run | None, JsonObject]:
    """Do it, and own the run from now on; or have its owner do it, then the first part is None.

    Raises what the request raises, whoever obeys it; Refused if the owner does not answer.
    """
    try:
        owned = store.take(run.id, owner_name())
    except Owned:
        return None, _ask(store, run, verb, args)
    try:
        return owned, steer(store, owned, verb, args)
    except BaseException:
        store.leave(owned)
        raise


def _ask(store: Store, run: Run, verb: Verb, args: JsonObject) -> JsonObject:
    number = store.request(run.id, verb, args, owner_name())
    deadline = time.monotonic() + _ANSWER_S
    while (answer := store.answer(number)) is None:
        if time.monotonic() > deadline:
            raise Refused(
                f"the controller of run {run.id} has not answered within {_ANSWER_S:.0f} s; the request stays and is "
                f"obeyed by the next one: `evalfleet resume {run.id}`"
            )
        time.sleep(_POLL_S)
    if "error" in answer:
        raise (InputError if answer.get("exit_code") == InputError.exit_code else Refused)(answer["error"])
    return answer


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
        text = f"{done}: {', '.join(tasks) or 'nothing'}"
        if left:
            states = ", ".join(f"{key} is {store.task(found.id, key).state}" for key in left)
            text += f"; not affected: {states}"
        say(as_json, {"run": found.id, **answer}, text)
    return 0
