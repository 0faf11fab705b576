"""A request to change a run: obeyed by its controller where one drives it, else done here."""

from __future__ import annotations

import time

from evalfleet.config import login_name
from evalfleet.engine.requests import steer
from evalfleet.engine.supervisor import owner_name
from evalfleet.errors import InputError, Owned, Refused
from evalfleet.model import JsonObject, Run, Verb
from evalfleet.store.store import Store

ANSWER_S = 10.0
_POLL_S = 0.02
_DRIVER_S = 0.5  # how often to check that the controller is alive
_QUEUES = frozenset({Verb.RETRY, Verb.RELEASE})


def ask_or_do(
    store: Store, run: Run, verb: Verb, args: JsonObject, *, by: str | None = None
) -> tuple[Run | None, JsonObject]:
    """Have the run's controller do it; then the first part is None. Without a controller do it here and own the run.

    A controller that exits without an answer is replaced. A run that was over and has waiting tasks again is running again,
    in the same transaction: the next controller goes on with them.

    Args:
        by: who asks, where that is not this process; recorded as an event even if no controller was asked.

    Raises what the request raises; Refused if the controller does not answer.
    """
    if by is None:  # the server writes down what it is asked for
        store.audit.add(login_name(), f"run.{verb}", run.id)
    owned = _taken(store, run)
    number = None
    if owned is None:
        number = store.requests.add(run.id, verb, args, by or owner_name())
        owned = _wait(store, run, number)
    if owned is None or (number is not None and store.requests.answer(number) is not None):
        if owned is not None:
            store.runs.leave(owned)
        return None, _checked((store.requests.answer(number) if number is not None else None) or {})
    try:
        return _do(store, owned, verb, args, number, by)
    except BaseException:
        store.runs.leave(owned)
        raise


def _taken(store: Store, run: Run) -> Run | None:
    try:
        return store.runs.take(run.id, owner_name())
    except Owned:
        return None


def _wait(store: Store, run: Run, number: int) -> Run | None:
    """Return None when the request is answered, or the run, now owned by the caller, when its controller is gone."""
    deadline = time.monotonic() + ANSWER_S
    look_at = time.monotonic() + _DRIVER_S
    while store.requests.answer(number) is None:
        now = time.monotonic()
        if now > deadline:
            raise Refused(
                f"the controller of run {run.id} has not answered within {ANSWER_S:.0f} s; the request stays and is "
                f"obeyed by the next one: `evalfleet resume {run.id}`"
            )
        if now > look_at:
            look_at = now + _DRIVER_S
            owned = _taken(store, run) if store.runs.driver(run.id) is None else None
            if owned is not None:
                return owned
        time.sleep(_POLL_S)
    return None


def _do(
    store: Store, owned: Run, verb: Verb, args: JsonObject, number: int | None, by: str | None
) -> tuple[Run, JsonObject]:
    over = owned.state.is_over
    with store.batch():
        if by is not None and number is None:
            store.events.note(owned.id, "run.requested", {**args, "verb": verb, "by": by})
        answer = steer(store, owned, verb, args)
        for request in store.requests.pending(owned.id):
            if request.number == number:
                store.requests.obey(owned, request, answer)
        if over and ((verb in _QUEUES and answer["tasks"]) or "trials" in answer):
            owned = store.runs.begin(owned) or owned
    return owned, answer


def _checked(answer: JsonObject) -> JsonObject:
    if "error" in answer:
        raise (InputError if answer.get("exit_code") == InputError.exit_code else Refused)(answer["error"])
    return answer
