"""Durations as people write them: "90s", "15m", "1h30m", "2d", "500ms"; a bare number is seconds."""

from __future__ import annotations

import re
from functools import lru_cache

HOUR_S = 3_600.0
_UNITS = {"d": 86_400.0, "h": HOUR_S, "m": 60.0, "s": 1.0, "ms": 0.001}
_LONGEST_S = 365 * 86_400.0
_NUMBER = r"(\d+(?:\.\d+)?)"
_TEXT = re.compile(rf"(?:{_NUMBER}d)? ?(?:{_NUMBER}h)? ?(?:{_NUMBER}m)? ?(?:{_NUMBER}s)? ?(?:{_NUMBER}ms)?", re.ASCII)
_BARE = re.compile(rf"{_NUMBER}", re.ASCII)
_ADVICE = 'write it like "90s", "15m", "1h30m", "2d" or "500ms"'


def parse(value: str | float) -> float:
    """Return the seconds of a duration.

    Raises:
        ValueError: not a duration, not above zero, or longer than 365 days; the message says which, and what to write.
    """
    return _parse_text(value) if isinstance(value, str) else _checked(float(value), f"{value:g}")


@lru_cache(maxsize=256)
def _parse_text(text: str) -> float:
    shown = '"' + (text if len(text) <= 40 else text[:40] + "…") + '"'
    stripped = text.strip()
    if _BARE.fullmatch(stripped):
        return _checked(float(stripped), shown)
    if stripped.startswith("-"):
        raise ValueError(f"{shown} is negative; a duration must be above zero")
    match = _TEXT.fullmatch(stripped)
    if not stripped or match is None:
        raise ValueError(f"{shown} is not a duration; {_ADVICE}")
    # Rounding takes out the dust of adding tenths: 1.1s is 1.1, and "1s100ms" is the same.
    total = sum(float(part) * unit for part, unit in zip(match.groups(), _UNITS.values(), strict=True) if part)
    return _checked(round(total, 6), shown)


def _checked(seconds: float, shown: str) -> float:
    if seconds != seconds:
        raise ValueError(f"{shown} is not a duration; {_ADVICE}")
    if seconds <= 0:
        raise ValueError(f"{shown} is {'zero' if seconds == 0 else 'negative'}; a duration must be above zero")
    if seconds > _LONGEST_S:
        raise ValueError(f"{shown} is longer than 365 days")
    return seconds


def show(seconds: float) -> str:
    """Write a duration the way `parse` reads it, exact to the millisecond: 5400 is "1h30m"; 0 is "0s"."""
    rest = round(seconds * 1000)
    parts: list[str] = []
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)):
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


def day(moment: float) -> str:
    """The date of a moment in seconds since 1970, as people here write it: "2026-11-18"."""
    import time

    return time.strftime("%Y-%m-%d", time.localtime(moment))
