"""End records from JSON.

A runner may be of another version, and its spool may be damaged: reading accepts any object, ignores members that it
does not know, and gives a member of the wrong type its default.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, cast

from evalfleet.core.failures.kinds import whole_text
from evalfleet.model import EndRecord, JsonObject

_TEXT = ("message", "result_error")
_WHOLE = ("exit_code", "signal", "errno", "steps")
_FLAGS = ("oom", "disk_full", "has_result")
_AMOUNTS = ("reported_usd", "duration_s", "idle_s")
_MAYBE = ("started_at", "ready_at", "ended_at", "cpu_s", "max_rss_mb")


def end_from_json(data: Mapping[str, Any]) -> EndRecord:
    """The record that `data` describes, as far as it can be understood. Never raises."""
    known: JsonObject = {}
    for name in _TEXT:
        known[name] = whole_text(value) if isinstance(value := data.get(name), str) else None
    for name in _WHOLE:
        known[name] = _whole(data.get(name))
    for name in _FLAGS:
        known[name] = data.get(name) is True
    for name in _AMOUNTS:
        known[name] = _amount(data.get(name)) or 0.0
    for name in _MAYBE:
        known[name] = _amount(data.get(name))
    if known["steps"] is not None and known["steps"] < 0:
        known["steps"] = None
    if data.get("result") is not None:
        known["has_result"] = True
    cause, tail, artifacts = data.get("cause"), data.get("tail"), data.get("artifacts")
    kept = cast("list[Any]", artifacts) if isinstance(artifacts, list | tuple) else []
    return EndRecord(
        cause=whole_text(cause) if isinstance(cause, str) else "none",
        result=data.get("result"),
        tail=whole_text(tail) if isinstance(tail, str) else "",
        artifacts=tuple(cast("JsonObject", entry) for entry in kept if isinstance(entry, dict)),
        **known,
    )


def _whole(value: Any) -> int | None:
    # Databases keep 64 bits.
    fits = isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63
    return value if fits else None


def _amount(value: Any) -> float | None:
    """Seconds, megabytes and dollars are finite and not negative; a task must not be able to lower its cost."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        amount = float(value)
    except OverflowError:
        return None
    return amount if math.isfinite(amount) and amount >= 0 else None
