"""Successive halving: many configurations with little of a resource, the best of them with more, the last few with all of it.

Contract:

- The resource is a name and a number, such as seconds of load or requests. A trial finds its share in `payload.budget`
  (`{"resource": "seconds", "amount": 30, "max": 270}`) and keeps to it; evalfleet does not check that.
- Rungs have `max`, `max / factor`, `max / factor²` and so on, as long as that is at least `min`; they are numbered from 0, the
  lowest. They are whole numbers where `min` and `max` are.
- The lowest rung has exactly `trials` configurations (or all of a smaller space). Of n on a rung the best n // factor, at
  least one, are measured again on the next: failed ones never, and where too few were measured fewer.
- Who is promoted follows from the results alone, whatever their order: one goes up as soon as all that is still to come on
  its rung could not displace it. So nothing waits that need not, and who drives the study next decides the same.
- Only the highest rung gives numbers to judge by. Baseline, repeats and the confirmation have all of the resource.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, cast

from msgspec import Struct

from evalfleet.errors import InputError
from evalfleet.tune.objective import Objective
from evalfleet.tune.trial import Progress, Role, Trial, Wanted
from evalfleet.validation import quoted, suggestion

_KEYS = ("resource", "min", "max", "factor")
_MOST_RUNGS = 20


class Halving(Struct, frozen=True, kw_only=True):
    resource: str
    budgets: tuple[float, ...]  # of each rung, lowest first
    factor: int

    @property
    def top(self) -> int:
        return len(self.budgets) - 1

    def counts(self, trials: int) -> list[int]:
        """How many trials each rung gets if none fails and the space is large enough."""
        found = [trials]
        for _ in self.budgets[1:]:
            found.append(max(1, found[-1] // self.factor))
        return found


class Rung(Struct, frozen=True, kw_only=True):
    """How one rung stands."""

    number: int
    budget: float
    expected: int  # how many it will have at most
    trials: tuple[Trial, ...]  # those of the search, by rank; not yet measured ones last


def rungs(halving: Halving, objective: Objective, trials: Sequence[Trial], count: int) -> list[Rung]:
    """All rungs, lowest first.

    Args:
        count: how many configurations the lowest will have.
    """
    found: list[Rung] = []
    expected = count
    for number, budget in enumerate(halving.budgets):
        here = [one for one in trials if one.rung == number and one.role in (Role.SEARCH, Role.PROMOTED)]
        here.sort(key=lambda one: _rank(objective, one))
        found.append(Rung(number=number, budget=budget, expected=expected, trials=tuple(here)))
        measured = sum(one.progress is Progress.MEASURED for one in here)
        quota = max(1, expected // halving.factor) if expected else 0
        expected = min(quota, measured) if _pending(found[-1]) == 0 else quota
    return found


def promotions(halving: Halving, objective: Objective, trials: Sequence[Trial], count: int) -> list[Wanted]:
    """The trials to promote now, the highest rung first."""
    ladder = rungs(halving, objective, trials, count)
    wanted: list[Wanted] = []
    for rung, above in pairwise(ladder):
        gone_up = {one.point for one in above.trials}
        waiting = [one for one in rung.trials if one.progress is Progress.MEASURED and one.point not in gone_up]
        # What is still to come on this rung may be better than all that is there.
        sure = max(1, rung.expected // halving.factor) - len(gone_up) - _pending(rung)
        wanted += [
            Wanted(role=Role.PROMOTED, parameters=one.parameters, rung=above.number) for one in waiting[: max(sure, 0)]
        ]
    return sorted(wanted, key=lambda one: -(one.rung or 0))


def _pending(rung: Rung) -> int:
    return rung.expected - sum(one.progress is not Progress.OPEN for one in rung.trials)


def _rank(objective: Objective, trial: Trial) -> tuple[Any, ...]:
    if trial.progress is not Progress.MEASURED:
        return (1, trial.number)
    return (0, *objective.rank(trial.metrics), trial.number)


def halving_of(table: Any) -> Halving:
    """Read `study.halving`. Raises InputError."""
    where = "study.halving"
    if not isinstance(table, dict):
        raise InputError(f'{where}: expected a table, such as {{ resource = "seconds", min = 10, max = 270 }}.')
    row = cast("dict[str, Any]", table)
    if unknown := sorted(row.keys() - set(_KEYS)):
        raise InputError(f"{where}: unknown key {quoted(unknown[0])}{suggestion(unknown[0], _KEYS)}.")
    resource, factor = row.get("resource", "seconds"), row.get("factor", 3)
    if not isinstance(resource, str) or not resource.strip():
        raise InputError(f'{where}.resource: expected a name, such as "seconds".')
    if isinstance(factor, bool) or not isinstance(factor, int) or not 2 <= factor <= 100:
        raise InputError(f"{where}.factor: expected a whole number from 2 to 100.")
    least, most = (_amount(f"{where}.{name}", row.get(name)) for name in ("min", "max"))
    if least > most:
        raise InputError(f"{where}: min ({least:g}) is above max ({most:g}); swap them.")
    whole = isinstance(least, int) and isinstance(most, int)
    budgets: list[float] = [most]
    # A share of a millionth is forgiven: 0.1 * 3 * 3 is not quite 0.9.
    while budgets[0] / factor >= least * (1 - 1e-6) and len(budgets) < _MOST_RUNGS:
        below = budgets[0] / factor
        if whole and round(below) == budgets[0]:
            break
        budgets.insert(0, round(below) if whole else below)
    return Halving(resource=resource, budgets=tuple(budgets), factor=factor)


def _amount(where: str, value: Any) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value <= 0:
        raise InputError(f"{where}: expected a number above 0.")
    return value
