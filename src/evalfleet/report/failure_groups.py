"""Failures that share one message, as the summary tells them."""

from __future__ import annotations

from evalfleet.answers.summary import CommonFailure, FailureGroup
from evalfleet.model import Blame, Run
from evalfleet.report import text
from evalfleet.store.reader import StoreReader

MOST_GROUPS = 20


def read_groups(store: StoreReader, run: Run) -> tuple[list[FailureGroup], CommonFailure | None]:
    """The largest groups of failures, and the one that makes up most of them."""
    lines = store.attempts.failure_lines(run.id)
    if not lines:
        return [], None
    from evalfleet.core.failures import (
        groups,  # its patterns cost `status` more than all else of a run without failures
    )

    found = groups.groups(groups.Line(**row) for row in lines)
    most = groups.most_of(found)
    told = None
    if most is not None:
        attempts = sum(group.attempts for group in found)
        told = CommonFailure.copy_of(most, of=attempts, advice=_advice(run, most.blame))
    return [FailureGroup.copy_of(group) for group in found[:MOST_GROUPS]], told


def sentence(common: CommonFailure) -> str:
    """What stands out among the failures."""
    tasks = text.count(common.tasks, "task")
    return f"{common.attempts:,} of {common.of:,} failures share one message, of {tasks}: {common.message}"


def _advice(run: Run, blame: str) -> str:
    if blame == Blame.TASK:
        return (
            "If this is not the task's own, add a [[judge.pattern]] to evalfleet.toml and judge the run anew: "
            f"`evalfleet judge {run.id}`."
        )
    return f"It is blamed on the {blame}: the valid score leaves it out."
