"""The trials of a study as rows: what was asked, what came of it, where it ran and how long its parts took."""

from __future__ import annotations

from collections.abc import Mapping

from evalfleet.answers.studies import Phase, Trial, TrialFailure, TrialPhases
from evalfleet.model import Attempt, AttemptState, Task
from evalfleet.tune import trial as trials
from evalfleet.tune.study import Study


def trial_row(study: Study, trial: trials.Trial, attempt: Attempt | None, now: float) -> Trial:
    """One trial, with the attempt that decided it or is on its way; None where it has none yet."""
    measured = trial.progress is trials.Progress.MEASURED
    failure = TrialFailure(kind=trial.kind, evidence=trial.evidence) if trial.kind is not None else None
    return Trial.copy_of(
        trial,
        task=trial.number,
        role=str(trial.role),
        progress=trial.progress.value,
        phase=phase(study, trial, attempt),
        parameters=dict(trial.parameters),
        metrics=dict(trial.metrics),
        feasible=study.objective.feasible(trial.metrics) if measured else None,
        broken=study.objective.broken(trial.metrics) if measured else [],
        worker=None if attempt is None else attempt.worker,
        gpus=[] if attempt is None else [device.index for device in attempt.devices],
        started_at=None if attempt is None else attempt.started_at,
        ended_at=None if attempt is None or trial.progress is trials.Progress.OPEN else attempt.ended_at,
        phases=None if attempt is None else phases(attempt, now),
        failure=failure if trial.progress is trials.Progress.FAILED else None,
    )


def phase(study: Study, trial: trials.Trial, attempt: Attempt | None) -> Phase | None:
    """What an open trial does now: waiting, deploying until it says that it is ready, then benchmarking."""
    if trial.progress is not trials.Progress.OPEN:
        return None
    if attempt is None or attempt.outcome is not None or attempt.state is AttemptState.LEASED:
        return "waiting"
    served = "server" in study.table["trial"]
    deploying = attempt.ready_at is None and (served or attempt.state is AttemptState.STARTING)
    return "deploying" if deploying else "benchmarking"


def phases(attempt: Attempt, now: float) -> TrialPhases | None:
    """How long it took until it was ready, and from there to its end; None where it never says that it is ready."""
    if attempt.started_at is None or attempt.ready_at is None:
        return None
    until = attempt.ended_at if attempt.ended_at is not None else now
    return TrialPhases(
        deploying_s=max(0.0, attempt.ready_at - attempt.started_at),
        benchmarking_s=max(0.0, until - attempt.ready_at),
    )


def deciding(tasks: Mapping[int, Task], attempts: list[Attempt]) -> dict[int, Attempt]:
    """By task: the attempt with its verdict, else the latest."""
    found: dict[int, Attempt] = {}
    for attempt in attempts:  # by task and number
        before = found.get(attempt.task_number)
        if attempt.task_number in tasks and (before is None or before.verdict is None):
            found[attempt.task_number] = attempt
    return found
