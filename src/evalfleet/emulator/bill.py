"""The emulator's bill: what Azure would charge, in cloud seconds. Tests compare evalfleet's costs with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field

from evalfleet.azure import prices
from evalfleet.azure.responses import inside
from evalfleet.emulator.clock import Clock
from evalfleet.pools.cloud.records import LABEL_POOL, Offering

SPOT_FACTOR = 0.2  # of the price on demand; made up, as the market is
UNKNOWN_USD_PER_HOUR = 0.5


def vm_usd_per_hour(size: str, region: str, *, spot: bool) -> float:
    found = prices.packaged().find(Offering(size=size, region=region))
    usd = found.usd_per_hour if found else UNKNOWN_USD_PER_HOUR
    return round(usd * SPOT_FACTOR, 4) if spot else usd


KINDS = ("vm", "disk", "ip", "snapshot", "image")


class Line(Struct):
    """One thing that costs money while it is there."""

    kind: str
    name: str
    usd_per_hour: float
    labels: dict[str, Any]  # region, pool, and what else tells it from others
    seconds: float = 0.0
    since: float | None = None  # running since; None: paused or over

    def used_s(self, now: float) -> float:
        return self.seconds + (now - self.since if self.since is not None else 0.0)

    def as_json(self, now: float) -> dict[str, Any]:
        seconds = self.used_s(now)
        known: dict[str, Any] = {"kind": self.kind, "name": self.name, **self.labels}
        return {
            **known,
            "seconds": seconds,
            "usd_per_hour": self.usd_per_hour,
            "usd": seconds * self.usd_per_hour / 3600,
            "running": self.since is not None,
        }


class Bill(Struct):
    """Meters by the id of what they measure.

    A VM's runs from the moment when it has booted (the end of its creation or start) to the moment when it is
    deallocated, evicted or deleted (the end of that operation); what never booted is not billed. A disk's, an
    address's, a snapshot's and an image's run from the request that makes it to its deletion, whatever the VM does.
    """

    clock: Clock
    _lines: list[Line] = field(default_factory=list[Line])
    _running: dict[str, Line] = field(default_factory=dict[str, Line])

    def begin(self, body: Mapping[str, Any], kind: str, usd_per_hour: float, **labels: Any) -> None:
        """Start the meter of a resource, or go on with it."""
        line = self._running.get(body["id"])
        if line is None:
            pool = inside(body, "tags", LABEL_POOL) or ""
            line = Line(kind, body["name"], usd_per_hour, {"region": body["location"], "pool": pool, **labels})
            self._lines.append(line)
            self._running[body["id"]] = line
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

    def as_json(self, pool: str | None = None) -> dict[str, Any]:
        """Return all lines, or those of one pool, with their sums."""
        now = self.clock.elapsed()
        rows = [line.as_json(now) for line in self._lines if pool in (None, line.labels["pool"])]
        kinds = {kind: sum(row["usd"] for row in rows if row["kind"] == kind) for kind in KINDS}
        hours = sum(row["seconds"] for row in rows if row["kind"] == "vm") / 3600
        return {
            "usd": sum(kinds.values()),
            "by_kind": kinds,
            "vm_hours": hours,
            "vms": _by_vm(rows),
            "speed": self.clock.speed,
            "lines": rows,
        }


def _by_vm(rows: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Sum up what was asked for each VM name: its allocated seconds, and the dollars of it and of its parts."""
    found: dict[str, dict[str, float]] = {}
    for row in rows:
        name = row["name"] if row["kind"] == "vm" else row.get("vm")
        if name:
            vm = found.setdefault(name, {"seconds": 0.0, "usd": 0.0, "disk_usd": 0.0, "ip_usd": 0.0})
            vm["usd" if row["kind"] == "vm" else f"{row['kind']}_usd"] += row["usd"]
            vm["seconds"] += row["seconds"] if row["kind"] == "vm" else 0.0
    return found
