"""What a study knows about its trials: what was requested and what it measured."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct, field
from msgspec.structs import force_setattr

from evalfleet.tune.expression import Value
from evalfleet.tune.space import identity


class Role(StrEnum):
    BASELINE = "baseline"  # the configuration to beat
    SEARCH = "search"  # proposed by the strategy
    PROMOTED = "promoted"  # of the search, measured again with more of the resource
    REPEAT = "repeat"  # another measurement of a contender
    CONFIRM = "confirm"  # the winner or the baseline once more, with nothing else of the study beside it


class Progress(StrEnum):
    OPEN = "open"  # waits or runs
    MEASURED = "measured"
    FAILED = "failed"  # by its own fault: out of memory, a bad flag, too slow
    VOID = "void"  # held or cancelled: says nothing about its parameters


class Trial(Struct, frozen=True, kw_only=True):
    """One measurement. `number` is its place in the study, from 1, by which it was proposed."""

    number: int
    parameters: Mapping[str, Value]
    role: Role = Role.SEARCH
    progress: Progress = Progress.OPEN
    metrics: Mapping[str, float] = field(default_factory=dict[str, float])
    key: str = ""
    reason: str | None = None  # why it failed
    kind: str | None = None  # of its failure: a `model.Kind`, or what its server said of it
    evidence: str | None = None  # one line that shows why
    duration_s: float | None = None
    rung: int | None = None  # with halving: how much of the resource it had, from 0
    final: bool = True  # whether it is a number to judge by: with halving those of the highest rung alone are
    point: str = ""  # the same text for the same parameters; worked out, never given

    def __post_init__(self) -> None:
        # Asked for in every look at the whole study, so it is worked out once.
        force_setattr(self, "point", identity(self.parameters))


class Wanted(Struct, frozen=True, kw_only=True):
    """A trial that should be made."""

    role: Role
    parameters: Mapping[str, Value]
    of: int | None = None  # of a repeat: which measurement of these parameters it is, from 2
    rung: int | None = None
