"""What a study does next: the baseline first, then the search, then more measurements of the contenders, then the winner
alone, then nothing.

All of it follows from the study and its trials, so the next controller continues where the last one stopped.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from evalfleet.tune.ranking import Contender, best, contenders
from evalfleet.tune.space import identity
from evalfleet.tune.stop_conditions import trouble
from evalfleet.tune.strategies.base import Strategy
from evalfleet.tune.strategies.halving import promotions
from evalfleet.tune.study import Study
from evalfleet.tune.trial import Progress, Role, Trial, Wanted


class Step(Struct, frozen=True, kw_only=True):
    wanted: tuple[Wanted, ...] = ()
    over: str | None = None  # why nothing more comes, once that is so
    trouble: str | None = None  # what happened and what to change, where a person must look first


def next_step(study: Study, searcher: Strategy, trials: Sequence[Trial], free: int, told: int = 0) -> Step:
    """At most `free` trials to make now.

    Args:
        searcher: the study's strategy, which knows nothing but what it is given here.
        trials: all that the study has, by number.
        told: the number of the last trial when the study last stopped because of failures; those are not reported again.
    """
    if found := trouble(trials, told):
        return Step(trouble=found)
    if any(trial.role is Role.CONFIRM and trial.progress is Progress.OPEN for trial in trials):
        return Step()  # it is measured alone
    wanted = _baseline(study, trials)
    searched = sum(trial.role is Role.SEARCH for trial in trials)
    left = min(study.trials - searched, free - len(wanted))
    exhausted, points = False, 0
    if left > 0:
        proposal = searcher.propose(_proposed(trials, wanted), left)
        lowest = None if study.halving is None else 0
        wanted += [Wanted(role=Role.SEARCH, parameters=point, rung=lowest) for point in proposal.points]
        points = len(proposal.points)
        exhausted = proposal.exhausted and points < left
    if study.halving is not None:
        count = searched + points if exhausted else study.trials
        wanted = promotions(study.halving, study.objective, trials, count) + wanted
    if wanted:
        return Step(wanted=tuple(wanted[: max(free, 0)]))
    open_ = any(trial.progress is Progress.OPEN for trial in trials)
    if searched < study.trials and not exhausted:
        # A strategy that waits for results when none are to come would wait for ever.
        return Step() if open_ or free <= 0 else Step(over="the strategy has no more proposals")
    if any(trial.progress is Progress.OPEN and trial.role is not Role.REPEAT for trial in trials):
        return Step()  # who the contenders are is known when all of the search is measured
    repeats = _repeats(study, trials)
    if repeats:
        return Step(wanted=tuple(repeats[: max(free, 0)]))
    if open_:
        return Step()
    if alone := _alone(study, trials):
        return Step(wanted=(alone,) if free > 0 else ())
    if searched >= study.trials:
        return Step(over=f"all {study.trials} trials are done")
    return Step(over=f"the space has no more points; {searched} of {study.trials} trials are done")


def _baseline(study: Study, trials: Sequence[Trial]) -> list[Wanted]:
    """The baseline, if it is neither measured nor in progress. A failed baseline was reported, and is measured again."""
    if study.baseline is None:
        return []
    if any(trial.role is Role.BASELINE and trial.progress is not Progress.FAILED for trial in trials):
        return []
    return [Wanted(role=Role.BASELINE, parameters=study.baseline, rung=study.top)]


def _proposed(trials: Sequence[Trial], wanted: Sequence[Wanted]) -> list[Trial]:
    """What a strategy is told: its own points and the baseline, numbered as if there were nothing else. So more trials of
    a study whose contenders were measured again are those that it would have made at once."""
    found = [trial for trial in trials if trial.role in (Role.BASELINE, Role.SEARCH)]
    found += [Trial(number=0, role=one.role, parameters=one.parameters) for one in wanted]
    return [
        trial if trial.number == place else replace(trial, number=place) for place, trial in enumerate(found, start=1)
    ]


def _repeats(study: Study, trials: Sequence[Trial]) -> list[Wanted]:
    """One more measurement for each contender that has too few. Failed ones count, so the number of attempts is bounded."""
    wanted: list[Wanted] = []
    for one in _repeated(study, trials) if study.repeats > 1 else ():
        made = _made(trials, one, confirm=False)
        wanted += [
            Wanted(role=Role.REPEAT, parameters=one.parameters, of=of, rung=study.top)
            for of in range(made + 1, study.repeats + 1)
        ]
    return wanted


def _repeated(study: Study, trials: Sequence[Trial]) -> list[Contender]:
    """The best of the search, and the baseline. Judged by first measurements, so that repeats do not change the ranking."""
    first = contenders(study.objective, [trial for trial in trials if trial.role is not Role.REPEAT])
    best = [one for one in first if one.feasible and not one.is_baseline][: study.contenders]
    return best + [one for one in first if one.is_baseline]


def _alone(study: Study, trials: Sequence[Trial]) -> Wanted | None:
    """One more measurement of the winner, then of the baseline, with nothing else beside it."""
    if not study.confirm:
        return None
    ranked = contenders(study.objective, trials)
    winner = best(study.objective, ranked)
    if winner is None:
        return None
    for one in [winner, *(one for one in ranked if one.is_baseline and one is not winner)]:
        made = _made(trials, one, confirm=True)
        if made < study.repeats:
            return Wanted(role=Role.CONFIRM, parameters=one.parameters, of=made + 1, rung=study.top)
    return None


def _made(trials: Sequence[Trial], one: Contender, *, confirm: bool) -> int:
    """Failed measurements count, so that it ends. Failed baselines do not: the cause was repaired before the next one."""
    point = identity(one.parameters)
    return sum(
        trial.final
        and trial.point == point
        and (trial.role is Role.CONFIRM) is confirm
        and not (trial.role is Role.BASELINE and trial.progress is Progress.FAILED)
        for trial in trials
    )
