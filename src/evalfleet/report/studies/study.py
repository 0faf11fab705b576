"""What a study has found so far, read from its run's tasks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import to_builtins

from evalfleet.errors import InputError
from evalfleet.model import JsonObject, Run, RunState
from evalfleet.report.studies.trials import deciding, trial_row
from evalfleet.store.base.store import StoreReader
from evalfleet.tune.confirmation import confirmation
from evalfleet.tune.expression import Value
from evalfleet.tune.importance import importance
from evalfleet.tune.ranking import Contender, best, contenders, front, verdict
from evalfleet.tune.server import flag_words
from evalfleet.tune.space import Choice, Parameter
from evalfleet.tune.strategies.halving import Halving, rungs
from evalfleet.tune.study import Study, study_of
from evalfleet.tune.tasks import trials_of
from evalfleet.tune.trial import Progress, Role, Trial


def study_in(run: Run) -> Study:
    """Raises InputError for a run that is no study."""
    if run.policy.study is None:
        raise InputError(f"run {run.id} is no study; `evalfleet study list` shows those that are")
    return study_of(run.policy.study)


def study_facts(store: StoreReader, run: Run) -> JsonObject:
    """All of it, as one moment shows it. Raises InputError for a run that is no study."""
    study = study_in(run)
    with store.snapshot():
        run = store.run(run.id)
        now = store.now()
        crowded = store.last_event(run.id, "run.crowded")
        tasks = {task.number: task for task in store.tasks(run.id)}
        attempts = deciding(tasks, store.attempts(run.id))
    trials = trials_of(tasks.values(), study.objective)
    rows = [trial_row(study, trial, attempts.get(trial.number), now) for trial in trials]
    said = crowded is not None and run.state is RunState.RUNNING and crowded.data["workers"] == run.policy.workers
    return {
        **_head(study, run),
        "crowded": crowded.data["message"] if crowded is not None and said else None,
        **_found(study, trials),
        **_searched(study, trials, rows),
        "trials": rows,
    }


_SHORT = (
    *("strategy", "objective", "constraints", "searched", "wanted", "counts"),
    *("best", "baseline", "verdict", "confirmed", "flags", "front", "nearest"),
)


def study_found(store: StoreReader, run: Run) -> JsonObject:
    """What a study found, for where a run shows its scores."""
    facts = study_facts(store, run)
    return {name: facts[name] for name in _SHORT}


def studies_facts(store: StoreReader) -> list[JsonObject]:
    """Every study, newest first, without its trials and what is drawn of them."""
    found: list[JsonObject] = []
    for run in store.runs():
        if run.policy.study is not None:
            facts = study_facts(store, run)
            found.append({name: value for name, value in facts.items() if name not in ("trials", "history")})
    return found


def _head(study: Study, run: Run) -> JsonObject:
    return {
        "run": run.id,
        "name": run.name,
        "state": run.state,
        "reason": (run.reason or {}).get("message"),
        "open": run.open,
        "created_at": run.created_at,
        "started_at": run.started_at,
        "ended_at": run.ended_at,
        "strategy": study.strategy,
        "seed": study.seed,
        "parallel": run.policy.workers,
        "pool": run.policy.pool,
        "objective": [{("maximize" if goal.maximise else "minimize"): goal.metric} for goal in study.objective.goals],
        "constraints": [limit.text for limit in study.objective.limits],
        "parameters": [_parameter(one) for one in study.space.parameters],
        "forbid": [rule.text for rule in study.space.forbid],
        "repeats": study.repeats,
        "wanted": study.trials,
    }


def _found(study: Study, trials: Sequence[Trial]) -> JsonObject:
    """Who leads, and how sure that is."""
    ranked = contenders(study.objective, trials)
    leader = best(study.objective, ranked)
    baseline = next((one for one in ranked if one.is_baseline), None)
    alone = confirmation(study.objective, trials, ranked)
    return {
        "best": None if leader is None else _told(leader),
        "baseline": None if baseline is None else _told(baseline),
        "verdict": None if leader is None else verdict(study.objective, leader, baseline),
        "confirmed": None if alone is None else {**to_builtins(alone), "alone": _told(alone.alone)},
        "flags": None if leader is None else as_flags(dict(leader.parameters)),
        "front": [_told(one) for one in front(study.objective, ranked)] if len(study.objective.goals) > 1 else None,
        "nearest": _told(ranked[0]) if leader is None and ranked else None,
    }


def _searched(study: Study, trials: Sequence[Trial], rows: Sequence[JsonObject]) -> JsonObject:
    """How far the search is, and what it showed on its way."""
    shares = importance(study.space, study.objective, trials)
    return {
        "searched": sum(trial.role is Role.SEARCH for trial in trials),
        "counts": {str(one): sum(trial.progress is one for trial in trials) for one in Progress},
        "history": _history(study, trials, rows),
        "importance": None if shares is None else [{"name": name, "share": share} for name, share in shares],
        "resource": None if study.halving is None else study.halving.resource,
        "rungs": None if study.halving is None else _rungs(study, study.halving, trials),
    }


def _history(study: Study, trials: Sequence[Trial], rows: Sequence[JsonObject]) -> list[JsonObject]:
    """What was measured, in the order of its ends, with the best until then that keeps all limits."""
    goal = study.objective.goals[0]
    found: list[JsonObject] = []
    leading: float | None = None
    ended = [
        (row["ended_at"] or 0.0, trial)
        for row, trial in zip(rows, trials, strict=True)
        if trial.progress is Progress.MEASURED and trial.final and trial.role is not Role.CONFIRM
    ]
    for at, trial in sorted(ended, key=lambda one: (one[0], one[1].number)):
        value = trial.metrics[goal.metric]
        feasible = study.objective.feasible(trial.metrics)
        if feasible and (leading is None or goal.cost(value) < goal.cost(leading)):
            leading = value
        found.append({"number": trial.number, "at": at, "value": value, "feasible": feasible, "best": leading})
    return found


def _rungs(study: Study, halving: Halving, trials: Sequence[Trial]) -> list[JsonObject]:
    searched = sum(trial.role is Role.SEARCH for trial in trials)
    found: list[JsonObject] = []
    for rung in rungs(halving, study.objective, trials, max(study.trials, searched)):
        states = [trial.progress for trial in rung.trials]
        leads = next((trial for trial in rung.trials if trial.progress is Progress.MEASURED), None)
        found.append(
            {
                "rung": rung.number,
                "budget": rung.budget,
                "wanted": rung.expected,
                "made": len(states),
                **{str(one): states.count(one) for one in Progress},
                "leads": None if leads is None else leads.key,
            }
        )
    return found


def _parameter(one: Parameter) -> JsonObject:
    when = None if one.when is None else one.when.text
    if isinstance(one, Choice):
        return {"name": one.name, "type": "choice", "values": list(one.values), "when": when}
    kind = "integer" if one.whole else "continuous"
    return {"name": one.name, "type": kind, "low": one.low, "high": one.high, "log": one.log, "when": when}


def _told(one: Contender) -> JsonObject:
    interval = one.interval
    return {
        "trial": one.key,
        "parameters": dict(one.parameters),
        "metrics": dict(one.metrics),
        "measurements": len(one.values),
        "values": list(one.values),
        "ci95": None if interval is None else to_builtins(interval),
        "feasible": one.feasible,
        "broken": list(one.broken),
        "is_baseline": one.is_baseline,
        "failures": one.failures,
    }


def as_flags(parameters: dict[str, Value]) -> str:
    """To paste behind a server's name: true is a bare flag, false is left out."""
    import shlex

    return shlex.join(flag_words(parameters))


def as_toml(parameters: dict[str, Value]) -> str:
    import json

    def shown(value: Any) -> str:
        return json.dumps(value, ensure_ascii=False) if isinstance(value, str | bool) else repr(value)

    return "\n".join(f"{name} = {shown(value)}" for name, value in parameters.items())
