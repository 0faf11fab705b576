"""Durations as Batch writes them: ISO 8601, such as PT5M or P1DT2H."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from evalfleet.azure.responses import inside

_PARTS = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?")
_VERY_LONG_S = 1e8
FOREVER = "P10675199DT2H48M5.4775807S"  # what Batch shows where there is no limit


def seconds(text: str) -> float:
    """Raises ValueError where it is no duration."""
    match = _PARTS.fullmatch(text)
    if match is None:
        raise ValueError(text)
    days, hours, minutes, rest = (float(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + rest


def limit_s(body: Mapping[str, Any]) -> float:
    """How long a job or a task may take, in seconds; very long where it does not say."""
    text = inside(body, "constraints", "maxWallClockTime") or FOREVER
    return min(seconds(str(text)), _VERY_LONG_S)
