"""Learns from results: Optuna's TPE sampler, used as a library.

Optuna keeps nothing for us. Its study lives in memory for one call and is replayed from our trials: measured ones with the
parameters that they were measured with, open ones as running, so that the next proposal keeps away from them, and failed ones
as infeasible.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from evalfleet.errors import InputError
from evalfleet.tune.objective import Objective
from evalfleet.tune.space import Choice, Parameter, Point, Space, identity
from evalfleet.tune.stop_conditions import INNOCENT
from evalfleet.tune.strategies.base import Proposal
from evalfleet.tune.strategies.random import drawn
from evalfleet.tune.trial import Progress, Role, Trial

if TYPE_CHECKING:
    from evalfleet.tune.expression import Value

_INITIAL = 8  # by chance, before there is enough to learn from
_ASKS = 20
_EXCESS = "excess"


class Bayesian:
    """Implements `Strategy`."""

    def __init__(self, space: Space, objective: Objective, seed: int) -> None:
        try:
            import optuna  # pyright: ignore[reportMissingImports] - an extra
        except ImportError:
            raise InputError(
                'the strategy "bayesian" needs Optuna; install it with `pip install "evalfleet[tune]"`, or use "random"'
            ) from None
        self._optuna: Any = optuna
        self._make = _maker(optuna)
        self._sets_constraints = hasattr(optuna.trial.FrozenTrial, "set_constraint")  # from Optuna 5 on
        self._distributions = {one.name: self._distribution(one) for one in space.parameters}
        self._records: dict[Any, Any] = {}
        self._space = space
        self._objective = objective
        self._seed = seed

    def propose(self, trials: Sequence[Trial], count: int) -> Proposal:
        tried = {trial.point for trial in trials}
        number = max((trial.number for trial in trials), default=0)
        study = self._replayed(trials, number)
        points: list[Point] = []
        while len(points) < count:
            point = self._asked(study, tried)
            if point is None:
                point = drawn(self._space, tried, random.Random(f"{self._seed}:{number + len(points) + 1}"))
            if point is None:
                return Proposal(points=tuple(points), exhausted=True)
            tried.add(identity(point))
            points.append(point)
        return Proposal(points=tuple(points))

    def _asked(self, study: Any, tried: set[str]) -> Point | None:
        """A point that the sampler likes and that may be tried; it stays open in `study`."""
        for _ in range(_ASKS):
            trial = study.ask()
            point: Point = {}
            for parameter in self._space.parameters:
                if parameter.when is None or parameter.when.holds(point):
                    point[parameter.name] = _suggested(trial, parameter)
            if identity(point) not in tried and self._space.allows(point):
                return point
            study.tell(trial, state=self._optuna.trial.TrialState.FAIL)
        return None

    def _replayed(self, trials: Sequence[Trial], number: int) -> Any:
        optuna = self._optuna
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        sampler = optuna.samplers.TPESampler(
            seed=(self._seed * 1_000_003 + number) % 2**32,
            n_startup_trials=_INITIAL,
            constant_liar=True,
            **({} if self._sets_constraints else {"constraints_func": _excess}),
        )
        directions = ["maximize" if goal.maximise else "minimize" for goal in self._objective.goals]
        study = optuna.create_study(sampler=sampler, directions=directions)
        worst = self._worst(trials)
        for trial in trials:
            if _speaks(trial) and self._within(trial):
                study.add_trial(self._told(trial, worst))
        return study

    def _told(self, trial: Trial, worst: list[float]) -> Any:
        """The record of a trial. It is the same each time, so it is made once: a study of thousands is replayed for every
        proposal."""
        key = (trial.point, trial.progress, tuple(trial.metrics.items()), tuple(worst))
        record = self._records.get(key)
        if record is None:
            record = self._records[key] = self._record(trial, worst)
        return record

    def _record(self, trial: Trial, worst: list[float]) -> Any:
        states = self._optuna.trial.TrialState
        fields: dict[str, Any] = {
            "params": dict(trial.parameters),
            "distributions": {name: self._distributions[name] for name in trial.parameters},
        }
        if trial.progress is Progress.OPEN:
            return self._make(state=states.RUNNING, values=None, user_attrs={}, system_attrs={}, **fields)
        values, excess = worst, [1e6]
        if trial.progress is Progress.MEASURED:
            values = [trial.metrics[goal.metric] for goal in self._objective.goals]
            excess = [limit.excess(trial.metrics) for limit in self._objective.limits] or [0.0]
        # The sampler orders infeasible ones by their excess alone; their values only fill the record.
        if self._sets_constraints:
            record = self._make(state=states.COMPLETE, values=values, user_attrs={}, system_attrs={}, **fields)
            for place, value in enumerate(excess):
                record.set_constraint(str(place), value)
            return record
        # Optuna 4 reads constraints from where its own hook stores them.
        attributes = {"user_attrs": {_EXCESS: excess}, "system_attrs": {"constraints": tuple(excess)}}
        return self._make(state=states.COMPLETE, values=values, **attributes, **fields)

    def _worst(self, trials: Sequence[Trial]) -> list[float]:
        found: list[float] = []
        for goal in self._objective.goals:
            values = [trial.metrics[goal.metric] for trial in trials if trial.progress is Progress.MEASURED]
            found.append(max(values, key=goal.cost) if values else 0.0)
        return found

    def _within(self, trial: Trial) -> bool:
        """A baseline may have parameters or values that the space has not; those cannot be told."""
        names = {parameter.name: parameter for parameter in self._space.parameters}
        return all(name in names and _has(names[name], value) for name, value in trial.parameters.items())

    def _distribution(self, parameter: Parameter) -> Any:
        kinds = self._optuna.distributions
        if isinstance(parameter, Choice):
            return kinds.CategoricalDistribution(parameter.values)
        kind = kinds.IntDistribution if parameter.whole else kinds.FloatDistribution
        return kind(parameter.low, parameter.high, log=parameter.log)


def _maker(optuna: Any) -> Any:
    """Makes records that Optuna does not copy to their depths when it takes them in: that is nearly all of a replay's time, and
    nobody changes what is inside."""

    class Record(optuna.trial.FrozenTrial):
        def __deepcopy__(self, _memo: object) -> Any:
            return copy.copy(self)

    begun = datetime.fromtimestamp(0, tz=UTC)

    def make(*, state: Any, values: list[float] | None, **fields: Any) -> Any:
        ended = begun if state.is_finished() else None
        return Record(
            number=-1, trial_id=-1, state=state, value=None, values=values, intermediate_values={},
            datetime_start=begun, datetime_complete=ended, **fields,
        )  # fmt: skip

    return make


def _speaks(trial: Trial) -> bool:
    """Whether it says something about its parameters. A taken port does not; out of memory does."""
    if trial.progress is Progress.FAILED:
        return trial.kind not in INNOCENT
    return trial.progress is not Progress.VOID and trial.role in (Role.BASELINE, Role.SEARCH)


def _excess(trial: Any) -> list[float]:
    return trial.user_attrs.get(_EXCESS, [0.0])


def _has(parameter: Parameter, value: Value) -> bool:
    if isinstance(parameter, Choice):
        return value in parameter.values
    if isinstance(value, bool | str) or (parameter.whole and not isinstance(value, int)):
        return False
    return parameter.low <= value <= parameter.high


def _suggested(trial: Any, parameter: Parameter) -> Value:
    if isinstance(parameter, Choice):
        return trial.suggest_categorical(parameter.name, parameter.values)
    suggest = trial.suggest_int if parameter.whole else trial.suggest_float
    return suggest(parameter.name, parameter.low, parameter.high, log=parameter.log)
