"""What a study does next: the baseline first, then the search, then more measurements of the contenders, then nothing.

All of it follows from the study and its trials, so that whoever drives it next goes on where the last one stopped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from evalfleet.tune.space import identity
from evalfleet.tune.standing import Contender, contenders
from evalfleet.tune.strategy import Strategy
from evalfleet.tune.study import Study
from evalfleet.tune.trial import Progress, Role, Trial, Wanted


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    wanted: tuple[Wanted, ...] = ()
    over: str | None = None  # why nothing more comes, once that is so


def next_step(study: Study, searcher: Strategy, trials: Sequence[Trial], free: int) -> Step:
    """At most `free` trials to make now.

    Args:
        searcher: the study's strategy, which knows nothing but what it is given here.
        trials: all that the study has, by number.
    """
    wanted: list[Wanted] = []
    if study.baseline is not None and not any(trial.role is Role.BASELINE for trial in trials):
        wanted.append(Wanted(role=Role.BASELINE, parameters=study.baseline))
    exhausted = False
    searched = sum(trial.role is Role.SEARCH for trial in trials)
    left = min(study.trials - searched, free - len(wanted))
    if left > 0:
        known = [*trials, *_as_open(wanted, trials)]
        proposal = searcher.propose(known, left)
        wanted += [Wanted(role=Role.SEARCH, parameters=point) for point in proposal.points]
        exhausted = proposal.exhausted and len(proposal.points) < left
    if wanted:
        return Step(wanted=tuple(wanted[: max(free, 0)]))
    open_ = any(trial.progress is Progress.OPEN for trial in trials)
    if searched < study.trials and not exhausted:
        # A strategy that waits for results when none are to come would wait for ever.
        return Step() if open_ or free <= 0 else Step(over="the strategy proposes nothing more")
    if any(trial.progress is Progress.OPEN and trial.role is not Role.REPEAT for trial in trials):
        return Step()  # who the contenders are is known when all of the search is measured
    repeats = _repeats(study, trials)
    if repeats:
        return Step(wanted=tuple(repeats[: max(free, 0)]))
    if open_:
        return Step()
    if searched >= study.trials:
        return Step(over=f"all {study.trials} trials were made")
    return Step(over=f"the space has no more points; {searched} of {study.trials} trials were made")


def _as_open(wanted: Sequence[Wanted], trials: Sequence[Trial]) -> list[Trial]:
    number = max((trial.number for trial in trials), default=0)
    return [
        Trial(number=number + place, role=one.role, parameters=one.parameters)
        for place, one in enumerate(wanted, start=1)
    ]


def _repeats(study: Study, trials: Sequence[Trial]) -> list[Wanted]:
    """One more measurement for each contender that has too few; failed ones count, so that it ends."""
    wanted: list[Wanted] = []
    for one in _repeated(study, trials) if study.repeats > 1 else ():
        made = sum(identity(trial.parameters) == identity(one.parameters) for trial in trials)
        wanted += [
            Wanted(role=Role.REPEAT, parameters=one.parameters, of=of) for of in range(made + 1, study.repeats + 1)
        ]
    return wanted


def _repeated(study: Study, trials: Sequence[Trial]) -> list[Contender]:
    """The best of the search, and the baseline. Judged by first measurements, so that repeats change nobody's place."""
    first = contenders(study.objective, [trial for trial in trials if trial.role is not Role.REPEAT])
    best = [one for one in first if one.feasible and not one.is_baseline][: study.contenders]
    return best + [one for one in first if one.is_baseline]
