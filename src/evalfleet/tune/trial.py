"""What a study knows of its trials: what was asked, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from evalfleet.tune.expression import Value


class Role(StrEnum):
    BASELINE = "baseline"  # the configuration to beat
    SEARCH = "search"  # proposed by the strategy
    REPEAT = "repeat"  # another measurement of a contender


class Progress(StrEnum):
    OPEN = "open"  # waits or runs
    MEASURED = "measured"
    FAILED = "failed"  # by its own fault: out of memory, a bad flag, too slow
    VOID = "void"  # held or cancelled: says nothing about its parameters


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One measurement. `number` is its place in the study, from 1, by which it was proposed."""

    number: int
    parameters: Mapping[str, Value]
    role: Role = Role.SEARCH
    progress: Progress = Progress.OPEN
    metrics: Mapping[str, float] = field(default_factory=dict[str, float])
    key: str = ""
    reason: str | None = None  # why it failed
    duration_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A trial that should be made."""

    role: Role
    parameters: Mapping[str, Value]
    of: int | None = None  # of a repeat: which measurement of these parameters it is, from 2
