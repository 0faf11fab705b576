"""Changes to a run: the same functions for the command line, the page and Python.

A run's controller makes the change where one drives the run; else it is made here, and the run is left for the next
controller. `by` names the person or token that asks, where that is not the person at this terminal; it is recorded as an event.

All raise NotFound, WrongState and InputError for what cannot be done, and Refused if the controller does not answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from evalfleet import config
from evalfleet.engine import controller
from evalfleet.errors import InputError, Refused
from evalfleet.model import JsonObject, Run, RunState, Verb
from evalfleet.operations.runs.request import ask_or_do
from evalfleet.report.summary import is_imported
from evalfleet.store.store import Store
from evalfleet.validation import checked_priority


class Changed(Struct, frozen=True, kw_only=True):
    """The run after a change."""

    run: str
    state: RunState
    driven: bool  # by a controller, which made the change. False: `evalfleet resume` continues the run


class ChangedTasks(Changed, frozen=True, kw_only=True):
    tasks: list[str]  # keys of the tasks that changed


class Cancelled(ChangedTasks, frozen=True, kw_only=True):
    live: int  # attempts that a controller still has to end


class Pausing(Changed, frozen=True, kw_only=True):
    pausing: int  # attempts that end first


class Amended(Changed, frozen=True, kw_only=True):
    workers: int
    budget_usd: float | None
    priority: int = 0


class Quarantine(Changed, frozen=True, kw_only=True):
    workers: list[str]  # workers and hosts that get no work of this run


def pause(store: Store, run: Run, *, reason: str | None = None, by: str | None = None) -> Pausing:
    """Start no more tasks. Attempts that run end first."""
    return Pausing(**change(store, run, Verb.PAUSE, {"reason": reason}, by))


def resume(
    store: Store, run: Run, *, workers: int | None = None, budget_usd: float | None = None, by: str | None = None
) -> Amended:
    """Take back a pause. A run without a controller is left for one: `controller.take` or the server drives it."""
    return Amended(**change(store, run, Verb.RESUME, _amendment(workers, budget_usd), by))


def amend(
    store: Store,
    run: Run,
    *,
    workers: int | None = None,
    budget_usd: float | None = None,
    priority: int | None = None,
    by: str | None = None,
) -> Amended:
    """Change the number of workers, the budget or the priority, also while the run is driven."""
    args = _amendment(workers, budget_usd, checked_priority(priority))
    if not args:
        raise InputError("nothing to change: give the number of workers, the budget or the priority")
    return Amended(**change(store, run, Verb.AMEND, args, by))


def hold(
    store: Store, run: Run, keys: Sequence[str], *, reason: str | None = None, by: str | None = None
) -> ChangedTasks:
    """Keep tasks from starting. A running task is held when its attempt ends without a verdict."""
    return ChangedTasks(**change(store, run, Verb.HOLD, {"keys": list(keys), "reason": reason}, by))


def release(store: Store, run: Run, keys: Sequence[str], *, by: str | None = None) -> ChangedTasks:
    """Let held tasks start again."""
    return ChangedTasks(**change(store, run, Verb.RELEASE, {"keys": list(keys)}, by))


def retry(store: Store, run: Run, only: Sequence[str] = (), *, by: str | None = None) -> ChangedTasks:
    """Give tasks without a verdict new attempts.

    Args:
        only: states (failed, held, cancelled) or task keys; empty: all tasks that failed or are held.
    """
    owned, answer = retry_and_own(store, run, only, by=by)
    if owned is not None:
        store.runs.leave(owned)
    return answer


def retry_and_own(
    store: Store, run: Run, only: Sequence[str] = (), *, by: str | None = None
) -> tuple[Run | None, ChangedTasks]:
    """Like `retry`. Without a controller the run is owned by the caller, who drives or leaves it; else the first part is None."""
    if is_imported(store, run.id):
        raise Refused(
            f"run {run.id} was imported: its tasks ran elsewhere, and there is nothing here that could run them"
        )
    owned, answer = ask_or_do(store, run, Verb.RETRY, {"only": list(only)}, by=by)
    return owned, ChangedTasks(**_facts(store, run, owned), **answer)


def quarantine(store: Store, run: Run, worker: str, *, reason: str | None = None, by: str | None = None) -> Quarantine:
    """Give a worker, or all workers of a host, no more work of this run."""
    return Quarantine(**change(store, run, Verb.QUARANTINE, {"worker": worker, "reason": reason or by}, by))


def unquarantine(
    store: Store, run: Run, worker: str, *, reason: str | None = None, by: str | None = None
) -> Quarantine:
    """Let a worker or host in quarantine work again."""
    return Quarantine(**change(store, run, Verb.UNQUARANTINE, {"worker": worker, "reason": reason}, by))


def request_cancel(store: Store, run: Run, *, by: str | None = None) -> Cancelled:
    """Cancel waiting and held tasks; the next controller ends live attempts. Without live attempts the run is cancelled now."""
    owned, answer = ask_or_do(store, run, Verb.CANCEL, {}, by=by)
    live = 0
    if owned is not None:
        try:
            live = len(store.attempts.unended(owned.id))
            if not live:
                store.runs.cancel(owned)
        finally:
            store.runs.leave(owned)
    return Cancelled(**_facts(store, run, owned), **answer, live=live)


async def cancel(settings: config.Settings, store: Store, run: Run, *, by: str | None = None) -> Cancelled:
    """Cancel waiting and held tasks, and end live attempts: by its controller, else here.

    Raises Refused where live attempts cannot be ended; the run is paused then.
    """
    import anyio.to_thread

    owned, answer = await anyio.to_thread.run_sync(lambda: ask_or_do(store, run, Verb.CANCEL, {}, by=by))
    if owned is not None:
        await controller.cancel(settings, store, owned)
    now = store.runs.get(run.id)
    if now.state is RunState.PAUSED and now.reason:
        raise Refused(f"the running tasks of run {run.id} could not be ended: {now.reason['message']}")
    return Cancelled(**_facts(store, run, owned), **answer, live=0)


def _amendment(workers: int | None, budget_usd: float | None, priority: int | None = None) -> JsonObject:
    given = {"workers": workers, "budget_usd": budget_usd, "priority": priority}
    return {name: value for name, value in given.items() if value is not None}


def change(store: Store, run: Run, verb: Verb, args: Mapping[str, Any], by: str | None) -> JsonObject:
    """Make one change. Returns the fields of `Changed`, and those that the verb answers with."""
    owned, answer = ask_or_do(store, run, verb, dict(args), by=by)
    if owned is not None:
        store.runs.leave(owned)
    return {**_facts(store, run, owned), **answer}


def _facts(store: Store, run: Run, owned: Run | None) -> JsonObject:
    return {"run": run.id, "state": store.runs.get(run.id).state, "driven": owned is None}
