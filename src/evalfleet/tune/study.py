"""A study: what to search, how, for how long, and what a trial is. Read from a mapping, as the run stores it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from evalfleet.errors import InputError
from evalfleet.model import JsonObject, Requests
from evalfleet.tune import expression
from evalfleet.tune.expression import Expression, Value
from evalfleet.tune.objective import Objective, objective_of
from evalfleet.tune.server import ServerRow, ServerSpec, check_baseline, server_of
from evalfleet.tune.space import Point, Space, space_of
from evalfleet.tune.strategies.base import STRATEGIES, Strategy, strategy_of
from evalfleet.tune.strategies.halving import Halving, halving_of
from evalfleet.validation import explain, seconds, sentence

MOST_TRIALS = 100_000
ENV_STYLES = ("index", "uuid")  # how CUDA_VISIBLE_DEVICES names the GPUs of a trial
_MOST = 2**31 - 1


class _StudyRow(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    name: str
    objective: Any
    strategy: str = "random"
    trials: int = 20
    max_parallel_experiments: int = 1
    constraints: Any = []
    timeout_per_trial: str | float = "1h"
    repeats: int = 1
    contenders: int = 3
    baseline: dict[str, Any] | None = None
    seed: int = 0
    attempts: int = 1
    files: list[str] = []
    halving: dict[str, Any] | None = None
    confirm: bool | None = None


class _TrialRow(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    command: list[str]
    env: dict[str, str] = {}
    secrets: list[str] = []
    gpus: int | str = 0
    gpu_memory_mb: int | str = 0
    env_style: str = "index"
    memory_mb: int | str = 0
    stall: str | float | None = None
    start_timeout: str | float | None = None
    server: ServerRow | None = None


class _FileRow(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    study: _StudyRow
    parameters: dict[str, Any]
    trial: _TrialRow


class TrialSpec(Struct, frozen=True, kw_only=True):
    """How one trial is run."""

    command: tuple[str, ...]
    env: Mapping[str, str]
    secrets: tuple[str, ...]
    gpus: int | Expression
    gpu_memory_mb: int | Expression  # of each GPU; 0: whole ones
    env_style: str
    memory_mb: int | Expression
    stall_s: float | None
    start_timeout_s: float | None
    server: ServerSpec | None = None

    def requests(self, point: Mapping[str, Value]) -> Requests:
        """What a trial with these parameters needs, not what the largest trial would. Raises InputError."""
        gpus, share = _amount("gpus", self.gpus, point), _amount("gpu_memory_mb", self.gpu_memory_mb, point)
        if share and not gpus:
            raise InputError(
                f"trial.gpu_memory_mb: is memory of each GPU, and {dict(point)} asks for no GPU; write gpus = 1 besides, or "
                "memory_mb for the memory of the host."
            )
        return Requests(gpus=gpus, gpu_memory_mb=share, memory_mb=_amount("memory_mb", self.memory_mb, point))


class Study(Struct, frozen=True, kw_only=True):
    name: str
    space: Space
    objective: Objective
    strategy: str
    trials: int  # of the search; baseline and repeats come on top
    parallel: int
    timeout_s: float
    repeats: int  # measurements of each contender and of the baseline
    contenders: int
    baseline: Point | None
    seed: int
    attempts: int
    files: tuple[str, ...]
    halving: Halving | None
    confirm: bool  # the winner is measured once more, alone
    trial: TrialSpec
    table: JsonObject  # as it was read, and is kept

    def __repr__(self) -> str:
        return f"Study(name={self.name!r})"

    @property
    def top(self) -> int | None:
        """The rung whose numbers count; None without rungs."""
        return None if self.halving is None else self.halving.top

    def searcher(self) -> Strategy:
        return strategy_of(self.strategy, self.space, self.objective, self.seed)


def study_of(table: Mapping[str, Any]) -> Study:
    """Read a study. Raises InputError, which names the part and what to do."""
    try:
        file = msgspec.convert(table, _FileRow)
    except msgspec.ValidationError as error:
        raise InputError(sentence(explain(error, _FileRow, {}))) from None
    row = file.study
    space = space_of(file.parameters)
    _check(row)
    study = Study(
        name=row.name,
        space=space,
        objective=objective_of(row.objective, row.constraints),
        strategy=row.strategy,
        trials=row.trials,
        parallel=row.max_parallel_experiments,
        timeout_s=seconds("study.timeout_per_trial", row.timeout_per_trial),
        repeats=row.repeats,
        contenders=row.contenders,
        baseline=_baseline(row.baseline),
        seed=row.seed,
        attempts=row.attempts,
        files=tuple(row.files),
        halving=_halving(row),
        confirm=row.max_parallel_experiments > 1 if row.confirm is None else row.confirm,
        trial=_trial(file.trial, space),
        table=dict(table),
    )
    if study.baseline is not None:
        study.trial.requests(study.baseline)
        if study.trial.server is not None:
            check_baseline(study.trial.server, (*study.trial.command, *study.trial.env.values()), space, study.baseline)
    return study


def _check(row: _StudyRow) -> None:
    if not row.name.strip() or "\0" in row.name:
        raise InputError("study.name: is empty; write a text.")
    strategy_name_known(row.strategy)
    bounds = {
        "trials": (row.trials, 1, MOST_TRIALS),
        "max_parallel_experiments": (row.max_parallel_experiments, 1, 10_000),
        "repeats": (row.repeats, 1, 100),
        "contenders": (row.contenders, 1, 1000),
        "attempts": (row.attempts, 1, 1000),
        "seed": (row.seed, 0, _MOST),
    }
    for name, (value, least, most) in bounds.items():
        if not least <= value <= most:
            raise InputError(f"study.{name}: {value} is out of range; the least is {least}, the most {most}.")


def strategy_name_known(name: str) -> None:
    """Raises InputError."""
    if name not in STRATEGIES:
        raise InputError(f"study.strategy: {name!r} is not one of {', '.join(STRATEGIES)}.")


def _halving(row: _StudyRow) -> Halving | None:
    if (row.strategy == "halving") != (row.halving is not None):
        raise InputError(
            'study.halving: goes with strategy = "halving", and that with it; write both, such as '
            'halving = { resource = "seconds", min = 10, max = 270 }, or neither.'
        )
    return None if row.halving is None else halving_of(row.halving)


def _baseline(values: dict[str, Any] | None) -> Point | None:
    if values is None:
        return None
    if not values or not all(isinstance(value, bool | int | float | str) for value in values.values()):
        raise InputError("study.baseline: expected a table with at least one parameter and its value.")
    return dict(values)


def _trial(row: _TrialRow, space: Space) -> TrialSpec:
    if not row.command or not row.command[0].strip():
        raise InputError(
            'trial.command: is empty; write the program and its arguments, such as ["python3", "bench.py"].'
        )
    server = None if row.server is None else server_of(row.server, space, row.command, row.env)
    return TrialSpec(
        command=tuple(row.command),
        env=row.env,
        secrets=tuple(row.secrets),
        gpus=_request("gpus", row.gpus, space),
        gpu_memory_mb=_request("gpu_memory_mb", row.gpu_memory_mb, space),
        env_style=_style(row.env_style),
        memory_mb=_request("memory_mb", row.memory_mb, space),
        stall_s=seconds("trial.stall", row.stall),
        start_timeout_s=seconds("trial.start_timeout", row.start_timeout),
        server=server,
    )


def _style(word: str) -> str:
    if word not in ENV_STYLES:
        raise InputError(f"trial.env_style: {word!r} is not one of {', '.join(ENV_STYLES)}.")
    return word


def _request(name: str, value: int | str, space: Space) -> int | Expression:
    if isinstance(value, str):
        return expression.parse(value, space.names)
    if not 0 <= value <= _MOST:
        raise InputError(f"trial.{name}: {value} is out of range; the least is 0, the most {_MOST}.")
    return value


def _amount(name: str, asked: int | Expression, point: Mapping[str, Value]) -> int:
    if isinstance(asked, int):
        return asked
    if absent := sorted(asked.names - point.keys()):
        raise InputError(f"trial.{name}: {asked.text!r} needs {absent[0]}, which has no value in {dict(point)}.")
    value = asked.value(point)
    if isinstance(value, str) or value != int(value) or not 0 <= value <= _MOST:
        raise InputError(
            f"trial.{name}: {asked.text!r} is {value!r} for {dict(point)}; it must be a whole number from 0."
        )
    return int(value)
