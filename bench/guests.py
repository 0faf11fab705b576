"""Guests of the `vm` environment: how long a clone takes until its agent answers, and how much memory clones share."""

from __future__ import annotations

import os
import statistics
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path

from table import Line

from evalfleet.environments.vm import environment as vm
from evalfleet.environments.vm import golden
from evalfleet.environments.vm.settings import VmSettings

ROOT = Path(__file__).parents[1]
CLONES = 8
CLONE_S = 1.5
SHARED = 0.6  # most of a clone's own memory, as a share of what it would take alone


def bench_guests() -> list[Line]:
    """Build the small guest where that was not done, and open clones one after the other until all are up."""
    built = subprocess.run([ROOT / "scripts" / "guest-image", "small"], stdout=subprocess.PIPE, text=True, check=True)
    folder = built.stdout.strip()
    if not folder:
        return [Line("vm", "not measured: scripts/guest-image says why")]
    settings = _settings(folder)
    begun = time.monotonic()
    with vm.launched(settings):
        first_s = time.monotonic() - begun
    took: list[float] = []
    spent: list[float] = []
    with ExitStack() as opened:
        guests: list[vm.Vm] = []
        for _ in range(CLONES):
            begun = time.monotonic()
            guests.append(opened.enter_context(vm.launched(settings)))
            took.append(time.monotonic() - begun)
            spent.append(_cpu_s(guests[-1].pid))
        own = [_memory_mb(guest.pid, "Pss") for guest in guests]
        alone = [_memory_mb(guest.pid, "Rss") for guest in guests]
        begun = time.monotonic()
        guests[0].reset()
        reset_s = time.monotonic() - begun
    clone_s = statistics.median(took)
    kind = golden.find(settings).accelerator.value.upper()
    share = sum(own) / sum(alone)
    return [
        Line(f"vm ({kind}): first start, prepared where it was not", f"{first_s:.2f} s"),
        Line(
            f"vm ({kind}): clone until its agent answers, of {CLONES}",
            f"{clone_s:.2f} s ({min(took):.2f} to {max(took):.2f})",
            f"{CLONE_S:g} s",
            clone_s <= CLONE_S,
        ),
        Line(f"vm ({kind}): CPU time of a clone until then", f"{statistics.median(spent):.2f} s"),
        Line(f"vm ({kind}): reset to a new clone", f"{reset_s:.2f} s", f"{CLONE_S:g} s", reset_s <= CLONE_S),
        Line(
            f"vm: memory of {CLONES} clones, PSS each (RSS each)",
            f"{sum(own) / CLONES:.0f} MiB ({sum(alone) / CLONES:.0f} MiB)",
            f"{SHARED:.0%}",
            share <= SHARED,
        ),
    ]


def _settings(folder: str) -> VmSettings:
    return VmSettings(
        image=f"{folder}/disk.qcow2",
        kernel=f"{folder}/kernel",
        initrd=f"{folder}/initrd",
        append="console=ttyS0 quiet random.trust_cpu=on",
        memory_mb=512,
        cpus=1,
        machine="pc",
        network="virtio-net-pci,romfile=",
        folder=f"{ROOT}/.guest/cache",
    )


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _memory_mb(pid: int, name: str) -> float:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) / 1024
    return 0.0
