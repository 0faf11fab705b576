"""What a study has found so far, read from its run's tasks."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from evalfleet.errors import InputError
from evalfleet.model import JsonObject, Run
from evalfleet.store.base import StoreReader
from evalfleet.tune.expression import Value
from evalfleet.tune.server import flag_words
from evalfleet.tune.standing import Contender, best, contenders, front, verdict
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
        trials = trials_of(store.tasks(run.id), study.objective)
    ranked = contenders(study.objective, trials)
    leader = best(study.objective, ranked)
    baseline = next((one for one in ranked if one.is_baseline), None)
    return {
        "run": run.id,
        "name": run.name,
        "state": run.state,
        "reason": (run.reason or {}).get("message"),
        "open": run.open,
        "strategy": study.strategy,
        "seed": study.seed,
        "parallel": run.policy.workers,
        "objective": [{("maximize" if goal.maximise else "minimize"): goal.metric} for goal in study.objective.goals],
        "constraints": [limit.text for limit in study.objective.limits],
        "wanted": study.trials,
        "searched": sum(trial.role is Role.SEARCH for trial in trials),
        "counts": {str(one): sum(trial.progress is one for trial in trials) for one in Progress},
        "best": None if leader is None else _told(leader),
        "baseline": None if baseline is None else _told(baseline),
        "verdict": None if leader is None else verdict(study.objective, leader, baseline),
        "front": [_told(one) for one in front(study.objective, ranked)] if len(study.objective.goals) > 1 else None,
        "nearest": _told(ranked[0]) if leader is None and ranked else None,
        "trials": [trial_row(study, trial) for trial in trials],
    }


def trial_row(study: Study, trial: Trial) -> JsonObject:
    measured = trial.progress is Progress.MEASURED
    return {
        "key": trial.key,
        "number": trial.number,
        "role": trial.role,
        "progress": trial.progress,
        "parameters": dict(trial.parameters),
        "metrics": dict(trial.metrics),
        "feasible": study.objective.feasible(trial.metrics) if measured else None,
        "broken": study.objective.broken(trial.metrics) if measured else [],
        "duration_s": trial.duration_s,
        "reason": trial.reason,
    }


def _told(one: Contender) -> JsonObject:
    interval = one.interval
    return {
        "trial": one.key,
        "parameters": dict(one.parameters),
        "metrics": dict(one.metrics),
        "measurements": len(one.values),
        "values": list(one.values),
        "ci95": None if interval is None else asdict(interval),
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
