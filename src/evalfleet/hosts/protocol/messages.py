"""Validates a runner's answers and events, as far as the controller relies on them.

A host may be foreign or broken, so these fields are checked before use. Members that are not named here may have any value.
"""

from __future__ import annotations

from math import isfinite
from typing import Any

import msgspec
from msgspec import Struct, field

from evalfleet.model import JsonObject


class ProtocolViolation(Exception):
    """A runner sent an invalid message. Only its connection is closed."""


class _Event(Struct):
    attempt: str
    event: int
    at: float
    type: str
    # of `progress`
    step: int | None = None
    cost_usd: float | None = None
    lines: list[Any] | None = None
    # of `ended`; whatever else it says is read by `core.ends`, which doubts everything
    artifacts: list[JsonObject] | None = None


class _Attempt(Struct):
    attempt: str
    run: str
    state: str


class _Gpu(Struct):
    processes: list[JsonObject | int] | None = None
    foreign: list[int] | None = None
    links: JsonObject | None = None


class _Hello(Struct):
    version: str
    attempts: list[_Attempt]
    gpus: list[_Gpu] = field(default_factory=list[_Gpu])
    gpus_age_s: float | None = None
    age_s: float | None = None


class _Inventory(Struct):
    memory_mb: int | None = None
    gpus: list[_Gpu] | None = None


class _Known(Struct):
    known: bool


class _Slots(Struct):
    free: int
    live: list[str]
    others: int
    by: list[Any]
    trouble: str | None = None


_ANSWERS: dict[str, type[Struct]] = {
    "hello": _Hello,
    "inventory": _Inventory,
    "attach": _Known,
    "put": _Known,
    "want": _Slots,
}
_MOST = 1 << 31  # events of one attempt


def check_answer(do: str, answer: JsonObject) -> None:
    """Raise NotTheProtocol unless it is a valid answer to that command. A refusal is valid."""
    shape = _ANSWERS.get(do)
    if shape is not None and answer.get("ok"):
        _check(answer, shape)


def check_slots(notice: JsonObject) -> None:
    """Raise NotTheProtocol unless it is a valid report of a run's slots on the host."""
    _check(notice, _Slots)


def check_event(event: JsonObject) -> None:
    """Raise NotTheProtocol unless it is a valid event of an attempt."""
    seen = _check(event, _Event)
    numbers = (seen.at, seen.cost_usd or 0.0, seen.step or 0)
    if not 0 <= seen.event < _MOST or not all(isfinite(one) and abs(one) < 2**63 for one in numbers):
        raise ProtocolViolation("an event with impossible numbers")


def moment(value: object) -> float:
    """Raise NotTheProtocol unless it is a valid time."""
    if isinstance(value, bool) or not isinstance(value, float | int) or not isfinite(value):
        raise ProtocolViolation(f"the time {value!r:.80}")
    return float(value)


def _check(message: JsonObject, shape: type[Any]) -> Any:
    try:
        return msgspec.convert(message, shape)
    except msgspec.ValidationError as error:
        raise ProtocolViolation(str(error)) from error
