"""What people ask of a run: by a request to its owner, or directly where nobody owns it.

Both ways apply the same function to the store, so that `evalfleet hold` means the same whoever obeys it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from evalfleet.errors import EvalfleetError, InputError, WrongState
from evalfleet.model import JsonObject, Run, RunState, TaskState, Verb
from evalfleet.store.base import Store

RETRIABLE = (TaskState.FAILED, TaskState.HELD, TaskState.CANCELLED)


def steer(store: Store, run: Run, verb: Verb, args: JsonObject) -> JsonObject:
    """Apply a request of the owner's to the store. Returns the answer: `{"tasks": [keys]}`.

    `cancel` only cancels what waits; ending live attempts is the engine's part.
    Raises NotFound, WrongState, InputError; then nothing is changed.
    """
    keys: Sequence[str] = args.get("keys") or []
    match verb:
        case Verb.CANCEL:
            if run.state in (RunState.COMPLETED, RunState.CANCELLED):
                raise WrongState(f"run {run.id} is {run.state} already; there is nothing to cancel")
            return {"tasks": store.cancel_tasks(run, "the run was cancelled")}
        case Verb.HOLD:
            return {"tasks": store.hold(run, keys, str(args.get("reason") or "held on request"))}
        case Verb.RELEASE:
            return {"tasks": store.release(run, keys)}
        case Verb.RETRY:
            return {"tasks": _retry(store, run, args.get("only") or [])}


def answered(store: Store, run: Run, verb: Verb, args: JsonObject) -> JsonObject:
    """Like `steer`, with an error as part of the answer, for the one who asked from elsewhere."""
    try:
        return steer(store, run, verb, args)
    except EvalfleetError as error:
        return {"error": str(error), "exit_code": error.exit_code}


def amended(run: Run, *, workers: int | None = None, budget_usd: float | None = None) -> Run:
    """The run with the few parts of its policy that may change between controllers."""
    policy = run.policy
    if workers is not None:
        policy = replace(policy, workers=workers)
    if budget_usd is not None:
        policy = replace(policy, budget_usd=budget_usd)
    return replace(run, policy=policy)


def _retry(store: Store, run: Run, only: Sequence[str]) -> list[str]:
    if not only:
        return store.retry(run, None, (TaskState.FAILED, TaskState.HELD))
    states = [TaskState(word) for word in only if word in RETRIABLE]
    if not states:
        return store.retry(run, only, RETRIABLE)
    if len(states) < len(only):
        raise InputError("--only takes states (failed, held, cancelled) or task keys, not both")
    return store.retry(run, None, states)
