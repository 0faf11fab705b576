"""The conversion between trials and the tasks that a run stores."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from evalfleet.model import JsonObject, Task, TaskSpec, TaskState
from evalfleet.tune.objective import Objective
from evalfleet.tune.server import SLACK_S
from evalfleet.tune.study import Study
from evalfleet.tune.trial import Progress, Role, Trial, Wanted

_PROGRESS = {
    TaskState.QUEUED: Progress.OPEN,
    TaskState.RUNNING: Progress.OPEN,
    TaskState.DONE: Progress.MEASURED,
    TaskState.FAILED: Progress.FAILED,
    TaskState.HELD: Progress.VOID,
    TaskState.CANCELLED: Progress.VOID,
}


def trial_spec(study: Study, wanted: Wanted, number: int) -> TaskSpec:
    """The task of a trial. Its key is the trial's number, so it cannot be created twice. Raises InputError."""
    payload: JsonObject = {
        "study": study.name,
        "role": str(wanted.role),
        "trial": number,
        "parameters": dict(wanted.parameters),
    }
    if wanted.of is not None:
        payload["measurement"] = wanted.of
    if study.halving is not None and wanted.rung is not None:
        budgets = study.halving.budgets
        payload["rung"] = wanted.rung
        payload["budget"] = {
            "resource": study.halving.resource,
            "amount": budgets[wanted.rung],
            "max": budgets[-1],
        }
    trial = study.trial
    command, env, start_timeout_s = trial.command, dict(trial.env), trial.start_timeout_s
    if trial.server is not None:
        payload["server"] = trial.server.settings(env, wanted.parameters)
        command = trial.server.words(command, wanted.parameters)
        env = trial.server.variables(env, wanted.parameters)
        start_timeout_s = start_timeout_s or trial.server.ready_timeout_s + SLACK_S
    return TaskSpec(
        key=f"trial_{number:04d}",
        domain=str(wanted.role),
        command=command,
        env=env,
        secrets=trial.secrets,
        payload=payload,
        timeout_s=study.timeout_s,
        stall_s=trial.stall_s,
        start_timeout_s=start_timeout_s,
        requests=trial.requests(wanted.parameters),
        gpu_env=trial.env_style,
    )


def trials_of(tasks: Iterable[Task], objective: Objective) -> list[Trial]:
    """The study's trials, as the store has them."""
    return [_trial(task, objective) for task in tasks]


def _trial(task: Task, objective: Objective) -> Trial:
    payload = cast("JsonObject", task.spec.payload)
    progress, reason = _PROGRESS[task.state], task.reason
    if task.state is TaskState.HELD and task.failure is not None and task.failure.consumes:
        progress = Progress.FAILED  # such as one that hung until its time was over: that may be its parameters
    metrics = _numbers(task.verdict.metrics) if task.verdict else {}
    if task.verdict is not None and (absent := objective.missing(metrics)):
        progress, reason = Progress.FAILED, f"its metrics lack {', '.join(absent)}"
    elif task.verdict is not None and not task.verdict.success:
        progress, reason = Progress.FAILED, "it reported that it did not succeed"
    budget = payload.get("budget")
    return Trial(
        number=task.number,
        parameters=payload["parameters"],
        role=Role(payload["role"]),
        progress=progress,
        metrics=metrics,
        key=task.key,
        reason=reason,
        kind=None if task.failure is None else str(task.failure.kind),
        evidence=None if task.failure is None else task.failure.evidence,
        duration_s=task.duration_s,
        rung=payload.get("rung"),
        final=budget is None or budget["amount"] == budget["max"],
    )


def _numbers(metrics: JsonObject) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, value in metrics.items():
        if isinstance(value, int | float) and not isinstance(value, bool):
            found[name] = float(value)
    return found
