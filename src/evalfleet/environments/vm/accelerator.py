"""Whether KVM works here, found out by running a guest with it.

A /dev/kvm that can be opened, and even makes virtual machines, may not run an ordinary guest: in some containers it runs
kernels of its own kind only. So a boot sector is run that enters 64-bit mode and ends QEMU with a certain exit status.
"""

from __future__ import annotations

import functools
import os
import subprocess
import tempfile

from evalfleet.environments.vm.settings import Accelerator
from evalfleet.errors import VmError

_TRIAL_S = 10.0
_EXIT = 67  # of QEMU, when the boot sector has written 0x21 to the port of isa-debug-exit
# Clear the segments; identity-map 2 MiB; switch PAE, long mode and paging on; jump to 64-bit code; out 0xf4, 0x21; halt.
_CODE = bytes.fromhex(
    "fa31c08ed88ec08ed0bc007c66bf001000000f22df6631c066b9000c0000fc66f3ab66c70600100320000066c7060020"
    "0330000066c7060030830000000f20e06683c8200f22e066b9800000c00f32660d000100000f30660f0116907c0f20c0"
    "660d010000800f22c066ea717c00000800b821000000e6f4f4ebfd0f1f440000000000000000000000000000009a2000"
    "0f00807c0000"
)
_BOOT_SECTOR = _CODE.ljust(510, b"\0") + b"\x55\xaa"


def chosen(wanted: Accelerator, qemu: str) -> Accelerator:
    """Return the accelerator to use. Raises VmError: KVM is wanted and does not work."""
    if wanted is Accelerator.TCG:
        return wanted
    why_not = kvm_refusal(qemu)
    if why_not and wanted is Accelerator.KVM:
        raise VmError(f"KVM does not work here: {why_not}")
    return Accelerator.TCG if why_not else Accelerator.KVM


@functools.cache
def kvm_refusal(qemu: str) -> str:
    """Return why KVM does not work here; empty where it does. Looks once."""
    if not os.path.exists("/dev/kvm"):
        return "there is no /dev/kvm"
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return "/dev/kvm may not be opened by this user (on most systems the group kvm may)"
    return trial_refusal(qemu, ["-accel", "kvm", "-cpu", "host"])


def trial_refusal(qemu: str, arguments: list[str], *, timeout_s: float = _TRIAL_S) -> str:
    """Run the boot sector, and return why it did not reach its end; empty where it did."""
    with tempfile.NamedTemporaryFile() as sector:
        sector.write(_BOOT_SECTOR)
        sector.flush()
        argv = [
            *(qemu, *arguments, "-m", "16", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"),
            *("-drive", f"file={sector.name},format=raw,if=ide,snapshot=on"),
            *("-device", "isa-debug-exit,iobase=0xf4,iosize=4"),
        ]
        try:
            done = subprocess.run(argv, capture_output=True, text=True, timeout=timeout_s, check=False)
        except subprocess.TimeoutExpired:
            return f"a trial guest of one sector did not run within {timeout_s:g} s"
        except OSError as error:
            return f"{qemu} cannot be started: {error.strerror}"
    if done.returncode == _EXIT:
        return ""
    said = done.stderr.strip().splitlines()
    return said[-1][:300] if said else f"a trial guest ended QEMU with status {done.returncode}"
