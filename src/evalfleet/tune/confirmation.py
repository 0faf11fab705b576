"""The confirmation of a study's winner: its measurement without other trials on the same machine."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from evalfleet.tune.objective import Objective
from evalfleet.tune.ranking import Contender, contender, verdict
from evalfleet.tune.space import identity
from evalfleet.tune.trial import Progress, Role, Trial


class Confirmation(Struct, frozen=True, kw_only=True):
    alone: Contender
    beside: float  # the winner's value of the first goal as it was measured with others beside it
    change: float | None  # from beside to alone, as a share; None where that would be a division by zero
    text: str


def confirmation(objective: Objective, trials: Sequence[Trial], ranked: Sequence[Contender]) -> Confirmation | None:
    """Compare the winner's measurement alone with its measurements beside other trials; None before it was measured alone.

    Args:
        ranked: the contenders, best first, by their measurements beside other trials.
    """
    winner = next((one for one in ranked if one.feasible), None)
    alone = None if winner is None else _alone(objective, trials, winner)
    if winner is None or alone is None:
        return None
    goal = objective.goals[0]
    beside, value = winner.metrics[goal.metric], alone.metrics[goal.metric]
    change = (value - beside) / abs(beside) if beside else None
    shift = f", {change:+.1%}" if change is not None else ""
    parts = [f"alone on its machine {goal.metric} is {value:.6g} (beside other trials {beside:.6g}{shift})"]
    if not alone.feasible:
        parts.append(f"alone it breaks {'; '.join(alone.broken)}")
    second = next((one for one in ranked if one.feasible and one is not winner), None)
    if second is not None and goal.cost(value) > goal.cost(second.metrics[goal.metric]):
        parts.append(
            f"that is worse than the second, {second.key}, beside others ({second.metrics[goal.metric]:.6g}): the lead is "
            "uncertain; measure both again with --parallel 1"
        )
    baseline = next((one for one in ranked if one.is_baseline), None)
    if baseline is not None and not winner.is_baseline:
        base = _alone(objective, trials, baseline)
        parts.append(
            f"both alone: {verdict(objective, alone, base)}" if base else "the baseline could not be measured alone"
        )
    return Confirmation(alone=alone, beside=beside, change=change, text="; ".join(parts))


def _alone(objective: Objective, trials: Sequence[Trial], one: Contender) -> Contender | None:
    point = identity(one.parameters)
    group = [trial for trial in trials if trial.role is Role.CONFIRM and trial.point == point and trial.final]
    measured = [trial for trial in group if trial.progress is Progress.MEASURED]
    return contender(objective, group, measured, is_baseline=one.is_baseline) if measured else None
