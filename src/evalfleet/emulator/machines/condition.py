"""The condition of a machine: what its fake programs show, in a file beside its disk."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import msgspec
from msgspec import Struct

from evalfleet.emulator.faults import Fault
from evalfleet.emulator.presets import BOOT

FILE = Path("etc", "evalfleet", "host")  # below the folder whose `bin` has the programs
KB_PER_GB = 1024 * 1024


class Condition(msgspec.Struct, forbid_unknown_fields=True):
    """What a machine shows to who looks at it from inside. It can be changed while the machine runs."""

    kvm: bool = True
    docker: bool = True  # its daemon answers
    disk_gb: float = 128.0
    disk_used_gb: float = 6.0  # by the system
    waste_gb: float = 0.0  # by leftovers of Docker, which a prune removes
    clock_skew_s: float = 0.0
    latency_s: float = 0.0  # of its network, each way
    cpu_percent: float = 15.0  # what Azure Monitor measures
    free_memory_gb: float = 16.0
    traffic_mb: float = 6.0  # that goes each way over network and disk in a minute

    def free_gb(self, images_gb: float) -> float:
        return max(0.0, self.disk_gb - self.disk_used_gb - self.waste_gb - images_gb)


def apply(condition: Condition, fault: Fault) -> None:
    """Do to the machine what a fault of "host.boot" says."""
    assert fault.preset is not None
    seconds = BOOT[fault.preset].seconds if fault.seconds is None else fault.seconds
    match fault.preset:
        case "no_kvm":
            condition.kvm = False
        case "disk_full":
            condition.disk_used_gb = condition.disk_gb
        case "disk_full_of_images":
            condition.waste_gb = condition.disk_gb - condition.disk_used_gb
        case "clock_skew":
            condition.clock_skew_s = seconds
        case "slow_host":
            condition.latency_s = seconds
        case "docker_down":
            condition.docker = False
        case _:
            pass  # of SSH; the host itself sees to it


class Surroundings(Struct, frozen=True, kw_only=True):
    """What the programs of a machine must know of where they are."""

    path: str  # PATH without them
    vm: str
    docker: str  # where its daemon listens
    images_gb: float  # what it has on the disk
    clock: bool  # the C library shows the wrong time already


def write(condition: Condition, base: Path, where: Surroundings) -> None:
    """Write the file that the programs read, in one step."""
    used = condition.disk_used_gb + condition.waste_gb + where.images_gb
    values = {
        "kvm": int(condition.kvm),
        "dockerd": int(condition.docker),
        "disk_kb": round(condition.disk_gb * KB_PER_GB),
        "used_kb": round(min(used, condition.disk_gb) * KB_PER_GB),
        "skew": 0 if where.clock else round(condition.clock_skew_s),
        "path": where.path,
        "vm": where.vm,
        "docker": where.docker,
    }
    file = base / FILE
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_suffix(".partial")
    partial.write_text("".join(f"{name}={shlex.quote(str(value))}\n" for name, value in values.items()))
    os.replace(partial, file)
