"""Steering a study from outside: its owner obeys, or we do where nobody drives it."""

from __future__ import annotations

from collections.abc import Callable

from evalfleet.cli.shared.steer import say
from evalfleet.cli.studies.shared.names import written_study
from evalfleet.model import JsonObject, Run, Verb
from evalfleet.operations.steer import ask_or_do
from evalfleet.report.text import count
from evalfleet.store.base.store import Store


def ask_study(
    home: str | None, study: str, verb: Verb, args: JsonObject, told: Callable[[JsonObject], str], *, as_json: bool
) -> int:
    """Apply a verb to a study, and say what came of it."""
    with written_study(home, study) as (_, store, run):
        owned, answer = ask_or_do(store, run, verb, args)
        if owned is not None:
            store.leave(owned)
        hint = "" if owned is None or verb is Verb.PAUSE else f"; `evalfleet resume {run.id}` drives it"
        say(as_json, {"run": run.id, **answer}, told(answer) + hint)
    return 0


def told_to_go_on(store: Store, run: Run, parallel: int | None, *, as_json: bool) -> int:
    """Have the one who drives the study go on, with so many trials at a time."""
    args: JsonObject = {} if parallel is None else {"workers": parallel}
    owned, answer = ask_or_do(store, run, Verb.RESUME, args)
    if owned is not None:  # its driver has left meanwhile
        store.leave(owned)
        say(as_json, {"run": run.id, **answer}, f"nobody drives it any more; `evalfleet study resume {run.id}` does")
        return 0
    at_a_time = f"{count(answer['workers'], 'trial')} at a time"
    say(as_json, {"run": run.id, **answer}, f"it is being driven, and goes on: {at_a_time}")
    return 0
