"""An emulated Azure in a process of its own, and a pool of VMs in it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from measuring import EVALFLEET, TICKS, Measured, environment, measure
from table import expect

KEEP = Path(__file__).with_name("keep_pool.py")
PATH = (
    "/usr/local/bin:/usr/bin:/bin"  # of a machine's SSH sessions; wrappers that only this shell has would be measured
)
END_S = 60


@dataclass(frozen=True, slots=True)
class Emulator:
    pid: int
    settings: dict[str, str]

    def traffic(self) -> list[dict[str, Any]]:
        with urllib.request.urlopen(f"{self.settings['EVALFLEET_AZURE_EMULATOR']}/emulator/traffic") as answer:
            return json.load(answer)["exchanges"]

    def cpu_s(self) -> tuple[float, float]:
        """Its own, with the SSH servers in it; and that of the VMs' commands that have ended."""
        stat = Path(f"/proc/{self.pid}/stat").read_bytes()
        fields = [int(word) / TICKS for word in stat[stat.rfind(b")") + 2 :].split()[11:15]]
        return fields[0] + fields[1], fields[2] + fields[3]


@contextmanager
def emulator() -> Iterator[Emulator]:
    env = environment() | ({"PATH": PATH} if shutil.which("python3", path=PATH) else {})
    command = [EVALFLEET, "emulator", "--speed", "0", "--json"]
    with open(os.devnull, "wb") as null:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=null, env=env)
    assert process.stdout is not None
    try:
        yield Emulator(process.pid, json.loads(process.stdout.readline())["variables"])
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(END_S)
        process.stdout.close()


@dataclass(frozen=True, slots=True)
class Kept:
    """A pool that was brought to what it should be."""

    wall_s: float  # from the first word to the store to the last VM
    measured: Measured


def keep(here: Emulator, home: Path, vms: int, profile: Path | None = None) -> Kept:
    report = home.with_suffix(".json")
    words = [sys.executable, str(KEEP), str(home), str(vms), str(report), *([str(profile)] if profile else [])]
    measured = measure(words, env=here.settings)
    expect(measured, 0)
    told = json.loads(report.read_text())
    if told["states"] != {"ready": vms}:
        raise SystemExit(f"bench: the VMs are {told['states']} instead of ready; the figures would mean nothing")
    return Kept(wall_s=told["wall_s"], measured=measured)
