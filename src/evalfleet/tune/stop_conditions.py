"""When a study stops and asks for help: the baseline failed, or the same failure came again and again.

A failed trial alone is no reason to stop: out of memory marks an edge of the space. A study stops for failures that more
trials would not get over.
"""

from __future__ import annotations

from collections.abc import Sequence

from evalfleet.core.failures.kinds import same_cause
from evalfleet.tune.trial import Progress, Role, Trial

_LEAST = 5  # equal failures in a row
_CHANCE = 0.001  # a row that the share of failures before it makes more likely than this is a wall of the space
_MEMORY = "ask for more memory or GPUs in [trial], or lower the values in [parameters] that use memory"
_START = "raise the start timeout in [trial], or look in the server's log for what it is waiting for"
_PROGRAM = "fix the program, or [trial] and [parameters], so that it can run"
_ADVICE = {
    "out_of_memory": _MEMORY,
    "oom": _MEMORY,
    "bad_flag": "fix the flags in [trial], or the names and values in [parameters], that the program rejects",
    "port_taken": "stop the process that uses the port, or make the server listen on the port it is given",
    "download": "make sure that this machine can reach and is allowed to download it, or download it beforehand",
    "startup_timeout": _START,
    "start_timeout": _START,
    "timeout": "raise study.timeout_per_trial, or give a trial less to do",
    "result_missing": "make the program write its metrics to EVALFLEET_RESULT",
    "launch_failed": "fix [trial] command: the program could not be started",
}
_FOREIGN = frozenset(
    {"gpu_taken", "runner_lost", "worker_lost", "preempted", "backend_error", "disk_full", "cancelled"}
)
INNOCENT = frozenset(
    {
        "port_taken",
        "download",
        "disk_full",
        "service_failed",
        "service_refused",
        "host_failed",
        "environment_failed",
        "gpu_taken",
    }
)
"""Failures that say nothing about the trial's parameters."""


def trouble(trials: Sequence[Trial], told: int) -> str | None:
    """Return what happened and what to change; None if the study may continue.

    Args:
        trials: all that the study has, by number.
        told: the number of the last trial at the last report; trials up to it no longer count.
    """
    recent = [trial for trial in trials if trial.number > told]
    for trial in recent:
        if trial.role is Role.BASELINE and trial.progress is Progress.FAILED:
            return f"the baseline failed ({trial.key}: {_said(trial)}), so there is nothing to compare with; {advice(trial)}"
    row = _row([trial for trial in recent if trial.progress is Progress.MEASURED or _failed(trial)])
    if len(row) < _LEAST:
        return None
    before = [trial for trial in trials if trial.progress in (Progress.MEASURED, Progress.FAILED)]
    before = [trial for trial in before if trial.number < row[-1].number]
    failed = sum(trial.progress is Progress.FAILED for trial in before)
    if len(before) > failed and ((failed + 1) / (len(before) + 2)) ** len(row) > _CHANCE:
        return None
    return f"the last {len(row)} trials failed in the same way ({row[0].key}: {_said(row[0])}); {advice(row[0])}"


def advice(trial: Trial) -> str:
    """What to change after such a failure."""
    return _ADVICE.get(trial.kind or "", _PROGRAM)


def _failed(trial: Trial) -> bool:
    """Also a trial that is retried because its failure was not its own."""
    own = trial.kind is not None and trial.kind not in _FOREIGN
    return trial.progress is Progress.FAILED or (trial.progress is Progress.OPEN and own)


def _row(ended: Sequence[Trial]) -> list[Trial]:
    """The equal failures at the end, the latest first."""
    row: list[Trial] = []
    for trial in reversed(ended):
        if trial.progress is Progress.MEASURED or (row and _cause(trial) != _cause(row[0])):
            break
        row.append(trial)
    return row


def _cause(trial: Trial) -> tuple[str | None, str]:
    return trial.kind, same_cause(trial.evidence or trial.reason or "", trial.key or None)


def _said(trial: Trial) -> str:
    said = trial.evidence or trial.reason or "it does not say why"
    return f"{trial.kind}: {said}" if trial.kind else said
