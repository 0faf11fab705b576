"""How long answers take, per address: kept in memory, for `/metrics`."""

from __future__ import annotations

from bisect import bisect_left

from msgspec import Struct, field

from evalfleet.model import JsonObject

BOUNDS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class _Taken(Struct):
    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS_S) + 1))
    sum_s: float = 0.0


class Latency:
    """Used in the event loop's thread. Addresses are those of the table of routes, so that there are few of them."""

    def __init__(self) -> None:
        self._taken: dict[tuple[str, str], _Taken] = {}

    def note(self, method: str, route: str, took_s: float) -> None:
        taken = self._taken.setdefault((method, route), _Taken())
        taken.counts[bisect_left(BOUNDS_S, took_s)] += 1
        taken.sum_s += took_s

    def rows(self) -> list[JsonObject]:
        """One row per address that was asked: `method`, `route`, `count`, `sum_s`, and `buckets`, whose counts are
        cumulative as Prometheus wants them; those above the last bound are in `count` only."""
        return [
            {
                "method": method,
                "route": route,
                "count": sum(taken.counts),
                "sum_s": taken.sum_s,
                "buckets": [[bound, sum(taken.counts[: place + 1])] for place, bound in enumerate(BOUNDS_S)],
            }
            for (method, route), taken in sorted(self._taken.items())
        ]
