"""How busy this host is: CPU, memory, the spool's disk, network. Read from /proc on request.

Nothing is measured without a request, so an idle machine stays idle. A value that cannot be read is None, not 0.
"""

from __future__ import annotations

import os
import re
import time

from ..attempt import process_tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FRESH_S = 2.5  # several controllers may ask; a share over a shorter time is mostly noise
STALE_S = 60.0  # no client asked for that long: the mean since then says nothing about now
_VIRTUAL = ("lo", "veth", "docker", "br-", "virbr", "tap", "tun", "cni", "flannel", "dummy")
_MEMORY_LIMITS = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current", "/sys/fs/cgroup/memory.stat"),
    (
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
        "/sys/fs/cgroup/memory/memory.usage_in_bytes",
        "/sys/fs/cgroup/memory/memory.stat",
    ),
)


class HostLoad:
    """Shares are averages since the last reading; the first reading only stores the counters."""

    def __init__(self, spool: str, proc: str = "/proc") -> None:
        self._spool = spool
        self._proc = proc
        self._looked_at = float("-inf")
        self._busy: tuple[int, int] | None = None
        self._bytes: tuple[int, int] | None = None
        self._told: dict[str, Any] | None = None

    def look(self) -> dict[str, Any] | None:
        """The current load; None at the first reading."""
        now = time.monotonic()
        passed_s = now - self._looked_at
        if passed_s < FRESH_S:
            return self._told
        busy, moved = (
            ticks(process_tree.read(self._proc + "/stat")),
            traffic(process_tree.read(self._proc + "/net/dev")),
        )
        told: dict[str, Any] | None = None
        if passed_s < STALE_S:
            told = {
                "cpu": _share(self._busy, busy),
                "memory": memory_share(process_tree.read(self._proc + "/meminfo")),
                "disk": disk_share(self._spool),
                "net_in_bps": _rate(self._bytes, moved, 0, passed_s),
                "net_out_bps": _rate(self._bytes, moved, 1, passed_s),
            }
        self._looked_at, self._busy, self._bytes, self._told = now, busy, moved, told
        return told


def ticks(text: bytes) -> tuple[int, int] | None:
    """Busy clock ticks and all clock ticks of all CPUs together. Steal time counts as busy."""
    match = re.match(rb"cpu +([\d ]+)\n", text)
    if match is None:
        return None
    counts = [int(word) for word in match.group(1).split()][:8]  # what follows is part of the first two
    if len(counts) < 4:
        return None
    idle = counts[3] + (counts[4] if len(counts) > 4 else 0)
    return sum(counts) - idle, sum(counts)


def traffic(text: bytes) -> tuple[int, int] | None:
    """Bytes received and sent by the network devices that lead out of the machine."""
    received = sent = 0
    for line in text.decode("utf-8", "replace").splitlines()[2:]:
        name, colon, rest = line.partition(":")
        words = rest.split()
        if not colon or len(words) < 9 or name.strip().startswith(_VIRTUAL):
            continue
        received += int(words[0])
        sent += int(words[8])
    return (received, sent) if text else None


def memory_share(text: bytes) -> float | None:
    """Used memory that cannot be reclaimed, as a share of the memory or of our control group's limit."""
    found = {name: int(value) for name, value in re.findall(rb"^(MemTotal|MemAvailable):\s+(\d+) kB", text, re.M)}
    total, free = found.get(b"MemTotal"), found.get(b"MemAvailable")
    if not total or free is None:
        return None
    share = 1.0 - free / total
    for limit, used, stat in _MEMORY_LIMITS:
        most, now = process_tree.read(limit).strip(), process_tree.read(used).strip()
        if most.isdigit() and now.isdigit() and 0 < int(most) < total << 10:
            again = re.search(rb"^(?:total_)?inactive_file (\d+)$", process_tree.read(stat), re.M)
            share = max(share, (int(now) - (int(again.group(1)) if again else 0)) / int(most))
    return round(min(1.0, max(0.0, share)), 4)


def disk_share(folder: str) -> float | None:
    """The used share of the disk space that is available to an ordinary user."""
    try:
        disk = os.statvfs(folder)
    except OSError:
        return None
    used = disk.f_blocks - disk.f_bfree
    return round(used / (used + disk.f_bavail), 4) if used + disk.f_bavail else None


def _share(before: tuple[int, int] | None, now: tuple[int, int] | None) -> float | None:
    if before is None or now is None or now[1] <= before[1]:
        return None
    return round(min(1.0, max(0.0, (now[0] - before[0]) / (now[1] - before[1]))), 4)


def _rate(before: tuple[int, int] | None, now: tuple[int, int] | None, place: int, passed_s: float) -> float | None:
    if before is None or now is None or now[place] < before[place]:
        return None  # a device went away
    return round((now[place] - before[place]) / passed_s, 1)
