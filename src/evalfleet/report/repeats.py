"""Episodes of the same task, as the summary tells of them. The keys are described in docs/reference/summary.md."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from evalfleet.answers.base import Range
from evalfleet.answers.summary import Intervals, PassAt, RepeatedTask, RepeatSummary
from evalfleet.core.statistics import repeats as core
from evalfleet.core.statistics.scores import Interval, clustered

_SHOWN = (1, 2, 3, 5, 10, 20, 50, 100)


def repeats_of(rows: Sequence[dict[str, Any]]) -> list[core.Repeats]:
    """Make the tasks of the store's rows; none at all where no task was repeated."""
    if not any(row["episodes"] > 1 for row in rows):
        return []
    return [
        core.Repeats(
            task=row["task"],
            domain=row["domain"],
            episodes=row["episodes"],
            counted=row["counted"],
            successes=round(row["successes"]),
            score_sum=row["score"],
            square_sum=row["squares"],
            low=row["low"],
            high=row["high"],
        )
        for row in rows
    ]


def intervals(repeats: Sequence[core.Repeats]) -> Intervals:
    """95% CIs of both scores that take the task as the unit, as in `scores.ci95`."""
    return Intervals(
        strict=bounds(clustered([(one.score_sum, one.episodes) for one in repeats])),
        valid=bounds(clustered([(one.score_sum, one.counted) for one in repeats])),
    )


def told(repeats: Sequence[core.Repeats], *, by_task: bool) -> RepeatSummary | None:
    """Return the member `repeats` of the summary; None where no task was repeated."""
    if not repeats:
        return None
    found = core.overall(repeats)
    return RepeatSummary.copy_of(
        found,
        score=found.mean,
        ci95=bounds(found.ci95),
        pass_at=[PassAt(k=one.k, tasks=one.tasks, score=one.mean, ci95=bounds(one.ci95)) for one in found.pass_at],
        by_task=[_task(one) for one in repeats] if by_task else None,
    )


def shown(passes: Sequence[PassAt]) -> list[PassAt]:
    """Those of `pass_at` that a person needs to see: the first ones, some on the way, and the last."""
    return [one for one in passes if one.k in _SHOWN or one is passes[-1]]


def bounds(interval: Interval | None) -> Range | None:
    return None if interval is None else (interval.low, interval.high)


def _task(one: core.Repeats) -> RepeatedTask:
    return RepeatedTask.copy_of(one, score=one.mean, pass_at=[one.pass_at(k) for k in range(1, one.counted + 1)])
