"""Requests of people to a run: sent to its owner, or applied directly if it has none.

Both ways apply the same function to the store, so that `evalfleet hold` means the same in both cases.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from evalfleet.errors import EvalfleetError, InputError, WrongState
from evalfleet.model import Distribution, JsonObject, PauseCause, Request, Run, RunState, TaskState, Verb
from evalfleet.store.reader import StoreReader
from evalfleet.store.store import Store

UNDONE = frozenset(
    {Verb.RETRY, Verb.RELEASE, Verb.HOLD, Verb.PAUSE, Verb.RESUME, Verb.AMEND}
)  # by a cancel that is under way
RETRIABLE = (TaskState.FAILED, TaskState.HELD, TaskState.CANCELLED)


def steer(store: Store, run: Run, verb: Verb, args: JsonObject) -> JsonObject:
    """Apply a request as the run's owner. Returns the answer: `{"tasks": [keys]}`.

    `cancel` only cancels what waits; ending live attempts is the engine's part.
    Raises NotFound, WrongState, InputError; then nothing is changed.
    """
    keys: Sequence[str] = args.get("keys") or []
    match verb:
        case Verb.CANCEL:
            if run.state.is_over:
                raise WrongState(f"run {run.id} is {run.state} already; there is nothing to cancel")
            return {"tasks": store.tasks.cancel(run, "the run was cancelled")}
        case Verb.HOLD:
            return {"tasks": store.tasks.hold(run, keys, str(args.get("reason") or "held on request"))}
        case Verb.RELEASE:
            return {"tasks": store.tasks.release(run, keys)}
        case Verb.RETRY:
            return {"tasks": _retry(store, run, args.get("only") or [])}
        case Verb.PAUSE:
            return _pause(store, run, args)
        case Verb.RESUME | Verb.AMEND:
            if verb is Verb.RESUME:
                store.runs.set_pausing(run, None)
            return amend(store, run, args)
        case Verb.QUARANTINE | Verb.UNQUARANTINE:
            return _bar(store, run, verb, args)
        case Verb.WITHDRAW:
            live = {attempt.id for attempt in store.attempts.unended(run.id) if attempt.outcome is None}
            return {"attempts": sorted(live.intersection(args.get("attempts") or ()))}


def answered(store: Store, run: Run, verb: Verb, args: JsonObject) -> JsonObject:
    """Like `steer`, but returns an error as part of the answer, for another process."""
    try:
        return steer(store, run, verb, args)
    except EvalfleetError as error:
        return {"error": str(error), "exit_code": error.exit_code}


def asked(store: Store, run: Run, request: Request, live: int, *, cancelling: bool) -> JsonObject:
    """The answer of a controller with this many live attempts. During a cancel, requests that it would undo are refused."""
    if cancelling and request.verb in UNDONE:
        then = f"once that is done `evalfleet retry {run.id} --only cancelled` tries its tasks again"
        return {"error": f"run {run.id} is being cancelled; {then}", "exit_code": WrongState.exit_code}
    if request.verb is not Verb.PAUSE:
        return answered(store, run, request.verb, request.args)
    store.runs.set_pausing(run, pause_reason(run, request.args))  # it goes on until its live attempts have ended
    return {"pausing": live}


def amended(
    run: Run, *, workers: int | None = None, budget_usd: float | None = None, priority: int | None = None
) -> Run:
    """The run with the few parts of its policy that may change between controllers."""
    policy = run.policy
    if workers is not None:
        policy = replace(policy, workers=workers)
    if budget_usd is not None:
        policy = replace(policy, budget_usd=budget_usd)
    if priority is not None:
        policy = replace(policy, priority=priority)
    return replace(run, policy=policy)


def amend(store: Store, run: Run, args: JsonObject) -> JsonObject:
    """Change the number of workers, the budget, the priority or a study's trials, if given. Returns the new values."""
    workers, budget_usd, priority = args.get("workers"), args.get("budget_usd"), args.get("priority")
    if workers is not None and run.policy.distribution is Distribution.ROUND_ROBIN:
        raise InputError("the workers of a round-robin run are its fixed shards; their number cannot change")
    policy = amended(run, workers=workers, budget_usd=budget_usd, priority=priority).policy
    more = args.get("add_trials")
    if more is not None:
        policy = replace(policy, study=_with_more(run, more))
    if policy != run.policy:
        store.runs.amend(run, policy)
    answer: JsonObject = {"workers": policy.workers, "budget_usd": policy.budget_usd, "priority": policy.priority}
    if policy.study is not None and more is not None:
        store.runs.set_open(run, True, f"{more} more trials were asked for")
        answer["trials"] = policy.study["study"]["trials"]
    return answer


def _with_more(run: Run, more: int) -> JsonObject:
    if run.policy.study is None:
        raise InputError(f"run {run.id} is no study; `evalfleet study list` shows those that are")
    from evalfleet.tune.study import MOST_TRIALS, study_of  # a plain run need not load it

    study = study_of(run.policy.study)
    if not 1 <= more <= MOST_TRIALS - study.trials:
        raise InputError(f"{more} more trials are too many or too few; a study has at most {MOST_TRIALS}")
    return {**run.policy.study, "study": {**run.policy.study["study"], "trials": study.trials + more}}


def pause_reason(run: Run, args: JsonObject) -> JsonObject:
    why = str(args.get("reason") or "an operator paused it")
    return {"cause": str(PauseCause.OPERATOR), "message": f"{why}; `evalfleet resume {run.id}` goes on"}


def barred(store: StoreReader, run_id: str) -> frozenset[str]:
    """The workers and hosts that get no work in this run, because a person or an alert said so."""
    names: set[str] = set()
    for event in store.events.quarantines(run_id):
        name = event.data.get("worker")
        if name is None:
            continue  # the engine's own quarantine ends with a canary
        (names.add if event.type == "worker.quarantined" else names.discard)(name)
    return frozenset(names)


def _pause(store: Store, run: Run, args: JsonObject) -> JsonObject:
    """Pause a run without a controller. The next controller takes care of attempts that still run."""
    if run.state is RunState.QUEUED:
        run = store.runs.begin(run) or run
    if store.runs.pause(run, pause_reason(run, args)) is None:
        raise WrongState(f"run {run.id} is {run.state}; only one that is queued or running can be paused")
    return {"pausing": 0}


def _bar(store: Store, run: Run, verb: Verb, args: JsonObject) -> JsonObject:
    worker = str(args.get("worker") or "")
    known = barred(store, run.id)
    if not worker:
        raise InputError("no worker is named; give its name, such as local-1, or that of a host")
    if verb is Verb.UNQUARANTINE and worker not in known:
        raise WrongState(f"{worker} is not quarantined in run {run.id}")
    if worker not in known or verb is Verb.UNQUARANTINE:
        event = "worker.quarantined" if verb is Verb.QUARANTINE else "worker.unquarantined"
        store.events.note(run.id, event, {"worker": worker, "reason": args.get("reason")})
    return {"workers": sorted(barred(store, run.id))}


def _retry(store: Store, run: Run, only: Sequence[str]) -> list[str]:
    if not only:
        return store.tasks.retry(run, None, (TaskState.FAILED, TaskState.HELD))
    states = [TaskState(word) for word in only if word in RETRIABLE]
    if not states:
        return store.tasks.retry(run, only, RETRIABLE)
    if len(states) < len(only):
        raise InputError("--only takes states (failed, held, cancelled) or task keys, not both")
    return store.tasks.retry(run, None, states)
