"""Faults as data: which operation, of which resource, how often, and what goes wrong.

::

    {"op": "vm.create", "match": {"location": "eastus"}, "preset": "allocation_failed", "times": 2}
    {"op": "vm.*", "preset": "throttled", "retry_after": 2, "times": 20}
    {"op": "host.boot", "match": {"name": "evalfleet-3"}, "preset": "no_kvm"}
    {"op": "host.docker", "match": {"command": "pull *"}, "preset": "pull_fails", "times": 2}
    {"op": "prices.list", "drop": true, "probability": 0.1}

All chance comes from one seeded generator, so that a scenario goes the same way each time.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

import msgspec
from msgspec import Struct, field

from evalfleet.emulator.arm.errors import ArmError, Never
from evalfleet.emulator.presets import PRESETS


class Fault(msgspec.Struct, forbid_unknown_fields=True):
    """One fault. Times are those of this machine's clock, not of the cloud's."""

    op: str  # a pattern, such as "vm.create" or "vm.*"
    match: dict[str, str] = {}  # attribute -> pattern
    preset: str | None = None
    times: int | None = None  # how often; None: always
    skip: int = 0  # so many matching operations pass first
    probability: float = 1.0
    delay: float = 0.0  # seconds before anything else
    hang: bool = False  # never answer
    drop: bool = False  # cut the connection
    retry_after: float = 1.0  # of "throttled"
    seconds: float | None = None  # of presets that have a length; None: the preset's own
    exit: int | None = None  # of "host.exec" and "host.docker": end so, without running the command
    stderr: str = ""  # and say this


class Counter(Struct):
    """A fault, and how often it was met and took effect."""

    number: int
    fault: Fault
    met: int = 0
    used: int = 0

    def as_json(self) -> dict[str, Any]:
        return {"number": self.number, "met": self.met, "used": self.used} | msgspec.to_builtins(self.fault)


class Faults(Struct):
    """The faults of this emulator, in the order in which they were given."""

    rng: random.Random
    _counters: list[Counter] = field(default_factory=list[Counter])
    _numbers: int = 0

    def add(self, fault: Fault) -> int:
        self._numbers += 1
        self._counters.append(Counter(self._numbers, fault))
        return self._numbers

    def clear(self) -> None:
        self._counters.clear()

    def listed(self) -> list[dict[str, Any]]:
        return [counter.as_json() for counter in self._counters]

    def take(self, op: str, attributes: Mapping[str, str]) -> Fault | None:
        """Return the first fault that hits this operation now, and count it."""
        return next(self.taken(op, attributes), None)

    def taken(self, op: str, attributes: Mapping[str, str]) -> Iterator[Fault]:
        """Yield the faults that hit this operation now, and count each."""
        for counter in self._counters:
            fault = counter.fault
            if not fnmatchcase(op, fault.op) or not _fits(fault, attributes):
                continue
            counter.met += 1
            if counter.met <= fault.skip or (fault.times is not None and counter.used >= fault.times):
                continue
            if fault.probability < 1 and self.rng.random() >= fault.probability:
                continue
            counter.used += 1
            yield fault


def _fits(fault: Fault, attributes: Mapping[str, str]) -> bool:
    return all(fnmatchcase(attributes.get(name, ""), pattern) for name, pattern in fault.match.items())


def error_of(fault: Fault, attributes: Mapping[str, str]) -> ArmError | None:
    """Return the error that the fault's preset stands for."""
    if fault.preset not in PRESETS:
        return None
    preset = PRESETS[fault.preset]
    if preset.hangs:
        return Never(preset.status, preset.code, "")
    values = {"size": "", "location": "", "name": "", **attributes}
    headers = {"Retry-After": f"{fault.retry_after:g}"} if preset.status == 429 else None
    message = preset.message.format(**values)
    return ArmError(preset.status, preset.code, message, headers=headers, detail=preset.detail)


def is_late(fault: Fault) -> bool:
    return fault.preset in PRESETS and PRESETS[fault.preset].late
