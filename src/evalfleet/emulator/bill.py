"""The emulator's own bill: what Azure would ask for, in cloud seconds. What we show people is checked against it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from evalfleet.azure import prices
from evalfleet.azure.offers import Offering
from evalfleet.emulator.clock import Clock

SPOT_FACTOR = 0.2  # of the price on demand; made up, as the market is
UNKNOWN_USD_PER_HOUR = 0.5


def vm_usd_per_hour(size: str, region: str, *, spot: bool) -> float:
    found = prices.packaged().find(Offering(size=size, region=region))
    usd = found.usd_per_hour if found else UNKNOWN_USD_PER_HOUR
    return round(usd * SPOT_FACTOR, 4) if spot else usd


@dataclass(slots=True)
class Line:
    """One thing that costs money while it is there."""

    kind: str  # vm, disk, ip
    name: str
    usd_per_hour: float
    seconds: float = 0.0
    since: float | None = None  # running since; None: paused or over

    def used_s(self, now: float) -> float:
        return self.seconds + (now - self.since if self.since is not None else 0.0)


@dataclass(slots=True)
class Bill:
    """Meters by the id of what they measure. A VM's stops when it is deallocated; a disk's only when it is deleted."""

    clock: Clock
    _lines: list[Line] = field(default_factory=list[Line])
    _running: dict[str, Line] = field(default_factory=dict[str, Line])

    def begin(self, id: str, kind: str, name: str, usd_per_hour: float) -> None:
        """Start a meter, or go on with it."""
        line = self._running.get(id)
        if line is None:
            line = Line(kind, name, usd_per_hour)
            self._lines.append(line)
            self._running[id] = line
        if line.since is None:
            line.since = self.clock.elapsed()

    def pause(self, id: str) -> None:
        line = self._running.get(id)
        if line is not None and line.since is not None:
            now = self.clock.elapsed()
            line.seconds, line.since = line.used_s(now), None

    def end(self, id: str) -> None:
        self.pause(id)
        self._running.pop(id, None)

    def as_json(self) -> dict[str, Any]:
        now = self.clock.elapsed()
        rows: list[dict[str, Any]] = [
            {
                "kind": line.kind,
                "name": line.name,
                "seconds": line.used_s(now),
                "usd_per_hour": line.usd_per_hour,
                "usd": line.used_s(now) * line.usd_per_hour / 3600,
            }
            for line in self._lines
        ]
        kinds = {kind: sum(row["usd"] for row in rows if row["kind"] == kind) for kind in ("vm", "disk", "ip")}
        return {"usd": sum(kinds.values()), "by_kind": kinds, "speed": self.clock.speed, "lines": rows}
