"""When a study had better stop and let somebody look: a baseline that fails, or one failure again and again.

A failed trial is no reason in itself: out of memory is how a wall of the space shows. What is told here is that which more
trials would not get over.
"""

from __future__ import annotations

from collections.abc import Sequence

from evalfleet.core.failures.kinds import same_cause
from evalfleet.tune.trial import Progress, Role, Trial

_LEAST = 5  # equal failures in a row
_CHANCE = 0.001  # a row that the share of failures before it makes more likely than this is a wall of the space
_MEMORY = "ask for more memory or GPUs in [trial], or keep what takes memory lower in [parameters]"
_START = "raise the time that it may take to start in [trial], or find in its log what it waits for"
_PROGRAM = "correct the program, or [trial] and [parameters], so that it can run"
_ADVICE = {
    "out_of_memory": _MEMORY,
    "oom": _MEMORY,
    "bad_flag": "correct the flags in [trial], or the names and values in [parameters], that the program refuses",
    "port_taken": "end what holds the port, or let the server take the port that it is given",
    "download": "see that this machine reaches what is downloaded, with the right to it, or bring it beforehand",
    "startup_timeout": _START,
    "start_timeout": _START,
    "timeout": "raise study.timeout_per_trial, or give a trial less to do",
    "result_missing": "let the program write its metrics to EVALFLEET_RESULT",
    "launch_failed": "correct [trial] command: the program could not be started",
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
    """What happened and what to change; None where the study may go on.

    Args:
        trials: all that the study has, by number.
        told: the last of them when somebody was told before; what came until then counts no more.
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
    return f"the last {len(row)} trials failed alike ({row[0].key}: {_said(row[0])}); {advice(row[0])}"


def advice(trial: Trial) -> str:
    """What to change after such a failure."""
    return _ADVICE.get(trial.kind or "", _PROGRAM)


def _failed(trial: Trial) -> bool:
    """Also one that is tried again because what it failed of is everybody's."""
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
