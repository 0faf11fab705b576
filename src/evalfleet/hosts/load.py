"""How busy a host is, from its runner's answer. Fields that a runner of another version does not send are unknown."""

from __future__ import annotations

import math
from typing import Any, cast

from evalfleet.core.hosts.load import Load
from evalfleet.model import JsonObject


def load_of(answer: JsonObject) -> Load | None:
    """The load in an answer to `hello`; None if it has none yet."""
    said = answer.get("load")
    if not isinstance(said, dict):
        return None
    told = cast("JsonObject", said)
    return Load(
        cpu=_share(told.get("cpu")),
        memory=_share(told.get("memory")),
        disk=_share(told.get("disk")),
        net_in_bps=_amount(told.get("net_in_bps")),
        net_out_bps=_amount(told.get("net_out_bps")),
        gpu=_busy(answer.get("gpus")),
    )


def _busy(gpus: Any) -> float | None:
    """The mean utilisation of the GPUs that report one."""
    rows = cast("list[Any]", gpus) if isinstance(gpus, list) else []
    known = [_amount(cast("JsonObject", row).get("utilization")) for row in rows if isinstance(row, dict)]  # in percent
    busy = [min(1.0, value / 100) for value in known if value is not None]
    return sum(busy) / len(busy) if busy else None


def _share(value: Any) -> float | None:
    found = _amount(value)
    return None if found is None else min(1.0, found)


def _amount(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        return None
    return float(value)
