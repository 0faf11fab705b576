"""Linux guests for the `vm` environment, built by scripts/guest-image and kept between test runs."""

from __future__ import annotations

import functools
import subprocess
from pathlib import Path

import msgspec
import pytest

from evalfleet.environments.vm.settings import VmSettings

ROOT = Path(__file__).resolve().parents[2]
_BUILD_S = 1800.0


@functools.cache
def _folder(kind: str) -> str:
    argv = [str(ROOT / "scripts" / "guest-image"), kind]
    done = subprocess.run(argv, stdout=subprocess.PIPE, text=True, timeout=_BUILD_S, check=True)
    return done.stdout.strip()


def guest(kind: str = "small", *, screen: str = "640x480", memory_mb: int = 512) -> VmSettings:
    """Return the settings of a guest, which is built where that was not done yet. Skips where it cannot be."""
    folder = _folder(kind)
    if not folder:
        pytest.skip("no guest can be built here: scripts/guest-image says why")
    return VmSettings(
        image=f"{folder}/disk.qcow2",
        kernel=f"{folder}/kernel",
        initrd=f"{folder}/initrd",
        append=f"console=ttyS0 quiet random.trust_cpu=on evalfleet.screen={screen}",
        memory_mb=memory_mb,
        cpus=1,
        machine="pc",
        network="virtio-net-pci,romfile=",
        folder=f"{ROOT}/.guest/cache",
    )


def opening(settings: VmSettings, more: str = "") -> str:
    """Return Python source: opens a guest, watched in the folder sys.argv[1], prints "ready", and closes it at the end of input."""
    return f"""
import sys
from pathlib import Path
import msgspec
from evalfleet.environments.vm import environment as vm
from evalfleet.environments.vm.settings import VmSettings
settings = msgspec.json.decode({msgspec.json.encode(settings)!r}, type=VmSettings)
{more}
with vm.launched(settings, view=Path(sys.argv[1], "vnc.sock")) as guest:
    print("ready", flush=True)
    sys.stdin.read()
"""
