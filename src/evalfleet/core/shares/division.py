"""Divides a number of slots by weight among those who want some.

Nobody gets more than they want, and what one does not want goes to the others, by their weights. A share is seldom a whole number: each
gets the whole part, and what is left over goes, one slot each, to those who had the least slot time of late for their weight. So over
time each has their share, also where there are fewer slots than people.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import floor

from msgspec import Struct

_ROUNDING = 1e-9


class Part(Struct, frozen=True, kw_only=True):
    """One who shares."""

    weight: float  # above 0
    wanted: int
    used_s: float = 0.0  # slot time of late


def divide(slots: int, parts: Sequence[Part]) -> list[int]:
    """How many slots each part gets. Together they get all slots, or all that they want."""
    shares = ideal(slots, parts)
    given = [floor(share + _ROUNDING) for share in shares]
    left = min(slots, sum(part.wanted for part in parts)) - sum(given)
    # By share as well, so that at the same use the larger share comes first.
    short = [
        place
        for place, part in enumerate(parts)
        if given[place] < part.wanted and shares[place] > given[place] + _ROUNDING
    ]
    short.sort(key=lambda place: (parts[place].used_s / parts[place].weight, given[place] - shares[place], place))
    for place in short[: max(0, left)]:
        given[place] += 1
    return given


def ideal(slots: int, parts: Sequence[Part]) -> list[float]:
    """The shares before they are made whole: equal by weight, up to what each wants."""
    shares = [0.0] * len(parts)
    short = {place for place, part in enumerate(parts) if part.wanted > 0}
    left = float(max(0, slots))
    while short:
        level = left / sum(parts[place].weight for place in short)
        full = {place for place in short if parts[place].wanted <= level * parts[place].weight + _ROUNDING}
        if not full:
            for place in short:
                shares[place] = level * parts[place].weight
            break
        for place in full:
            shares[place] = float(parts[place].wanted)
            left -= shares[place]
        short -= full
    return shares
