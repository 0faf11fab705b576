"""What a host needs for the `vm` environment, checked one after the other: QEMU, the accelerator, the image, memory, a prepared machine."""

from __future__ import annotations

import time
from collections.abc import Callable

from evalfleet.core.readiness import ReadinessCheck
from evalfleet.environments.vm import accelerator
from evalfleet.environments.vm import golden as images
from evalfleet.environments.vm.golden import GoldenImage
from evalfleet.environments.vm.prepared import is_prepared, prepared
from evalfleet.environments.vm.settings import Accelerator, VmSettings
from evalfleet.errors import EvalfleetError

INSTALL = "apt-get install -y --no-install-recommends qemu-system-x86 qemu-utils"
_KVM_REMEDY = "use a machine with hardware virtualisation; without it guests run about ten times slower (TCG)"
_MIB = 1 << 20


def image_check(settings: VmSettings) -> tuple[ReadinessCheck, GoldenImage | None]:
    """Whether QEMU and the image are there, with the image."""
    begun = time.monotonic()
    try:
        golden = images.find(settings)
    except EvalfleetError as error:
        remedy = f"install QEMU with: {INSTALL}; name the image in [vm] of evalfleet.toml"
        return ReadinessCheck(name="vm image", holds=False, seen=str(error), remedy=remedy, took_s=_since(begun)), None
    seen = f"{golden.disk} ({golden.disk_bytes / (1 << 30):.1f} GiB), {golden.qemu}"
    return ReadinessCheck(name="vm image", holds=True, seen=seen, took_s=_since(begun)), golden


def accelerator_check(golden: GoldenImage) -> ReadinessCheck:
    """Whether guests run at full speed. TCG holds, too, because it works."""
    if golden.accelerator is Accelerator.KVM:
        return ReadinessCheck(name="vm accelerator", holds=True, seen="KVM runs guests")
    wanted = golden.settings.accelerator is Accelerator.TCG
    why = "as configured" if wanted else accelerator.kvm_refusal(golden.qemu)
    return ReadinessCheck(name="vm accelerator", holds=True, seen=f"TCG: {why}", remedy="" if wanted else _KVM_REMEDY)


def memory_check(settings: VmSettings) -> ReadinessCheck:
    """How many guests this host has memory for."""
    total_mb = _memory_mb("MemTotal")
    guests = total_mb // settings.request_mb
    seen = f"{total_mb} MB, enough for {guests} guests of {settings.memory_mb} MB at a time"
    remedy = "" if guests else "use a larger machine, or set memory_mb in [vm] lower"
    return ReadinessCheck(name="vm memory", holds=guests > 0, seen=seen, remedy=remedy)


def prepare(
    settings: VmSettings, tell: Callable[[ReadinessCheck], None], say: Callable[[str], None]
) -> list[ReadinessCheck]:
    """Make this host ready: check everything, and boot the image once where that was not done. Ends with what does not hold."""
    done: list[ReadinessCheck] = []

    def told(check: ReadinessCheck) -> bool:
        done.append(check)
        tell(check)
        return check.holds

    found, golden = image_check(settings)
    if not told(found) or golden is None:
        return done
    if told(accelerator_check(golden)) and told(memory_check(settings)):
        told(_prepared_check(golden, say))
    return done


def recheck(settings: VmSettings) -> list[ReadinessCheck]:
    """Look quickly whether this host still is ready."""
    found, golden = image_check(settings)
    return [found] if golden is None else [found, accelerator_check(golden), memory_check(settings)]


def _prepared_check(golden: GoldenImage, say: Callable[[str], None]) -> ReadinessCheck:
    begun = time.monotonic()
    already = is_prepared(golden)
    try:
        with prepared(golden, say=say) as made:
            seen = f"{'was' if already else 'is now'} prepared in {made.folder}"
    except EvalfleetError as error:
        remedy = "look at the guest: boot the image by hand with the same arguments; see docs/howto/vm-environment.md"
        return ReadinessCheck(name="vm guest", holds=False, seen=str(error), remedy=remedy, took_s=_since(begun))
    return ReadinessCheck(name="vm guest", holds=True, seen=seen, took_s=_since(begun))


def _since(begun: float) -> float:
    return round(time.monotonic() - begun, 3)


def _memory_mb(name: str) -> int:
    with open("/proc/meminfo", encoding="ascii") as file:
        for line in file:
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * 1024 // _MIB
    return 0
