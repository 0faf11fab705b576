"""How much each parameter matters, as far as the trials of a study can show.

The share of the variance of the first goal's ranks that goes with one parameter alone: values are put into groups (a choice by
its value, a range by quarters of its trials), and the means of the groups are compared with the spread inside of them. What
as many groups would show by chance is taken off (epsilon squared). It knows no interactions: two parameters that matter only
together may both show little. Where parameters went together in the trials, as a search makes them, both explain the same
differences; shares that would add up to more than 1 are scaled down to 1.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from evalfleet.tune.objective import Objective
from evalfleet.tune.space import Choice, Parameter, Space
from evalfleet.tune.trial import Progress, Role, Trial

LEAST = 10  # trials; below that chance would speak
_BINS = 4


def importance(space: Space, objective: Objective, trials: Sequence[Trial]) -> list[tuple[str, float]] | None:
    """Names and shares, the largest first; None if there are too few trials or all of them measured the same."""
    rung = 0 if any(trial.rung is not None for trial in trials) else None
    seen = [
        trial
        for trial in trials
        if trial.role is Role.SEARCH and trial.progress is Progress.MEASURED and trial.rung == rung
    ]
    if len(seen) < LEAST:
        return None
    goal = objective.goals[0]
    ranks = _ranks([trial.metrics[goal.metric] for trial in seen])
    if len(set(ranks)) == 1:
        return None
    found = [(parameter.name, _share(_groups(parameter, seen), ranks)) for parameter in space.parameters]
    whole = max(1.0, sum(share for _, share in found))
    return sorted(((name, share / whole) for name, share in found), key=lambda one: -one[1])


def _groups(parameter: Parameter, trials: Sequence[Trial]) -> list[str]:
    """For each trial the name of its group. Where the parameter does not apply is a group too."""
    values = [trial.parameters.get(parameter.name) for trial in trials]
    numbers = sorted(value for value in values if isinstance(value, int | float))
    if isinstance(parameter, Choice) or len(set(numbers)) <= _BINS:
        return [repr(value) for value in values]
    cuts = [numbers[len(numbers) * cut // _BINS] for cut in range(1, _BINS)]
    return ["" if not isinstance(value, int | float) else str(sum(value >= cut for cut in cuts)) for value in values]


def _share(groups: Sequence[str], ranks: Sequence[float]) -> float:
    members: dict[str, list[float]] = {}
    for group, rank in zip(groups, ranks, strict=True):
        members.setdefault(group, []).append(rank)
    free = len(ranks) - len(members)
    if len(members) < 2 or free <= 0:
        return 0.0
    mean = statistics.fmean(ranks)
    total = sum((rank - mean) ** 2 for rank in ranks)
    within = sum((rank - statistics.fmean(one)) ** 2 for one in members.values() for rank in one)
    return max(0.0, (total - within - (len(members) - 1) * within / free) / total)


def _ranks(values: Sequence[float]) -> list[float]:
    """Places in order; equal values share the middle of theirs."""
    ordered = sorted(values)
    first: dict[float, int] = {}
    last: dict[float, int] = {}
    for place, value in enumerate(ordered):
        first.setdefault(value, place)
        last[value] = place
    return [(first[value] + last[value]) / 2 for value in values]
