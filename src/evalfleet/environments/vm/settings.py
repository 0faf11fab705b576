"""`[vm]` of the configuration file: the golden image, the machine that runs it, and what a reset means."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import ClassVar

from msgspec import field

from evalfleet.config.tables import Check, FilePath, Seconds, SettingsTable, is_path


class Reset(StrEnum):
    """What an attempt begins with, and what `reset` returns to."""

    CLOSE = "close"  # the guest of the attempt before, with its windows closed
    RESTART = "restart"  # the disk of the attempt before, booted
    OVERLAY = "overlay"  # the golden disk, booted
    SNAPSHOT = "snapshot"  # a running copy of the golden machine


class Accelerator(StrEnum):
    """How QEMU runs the guest's instructions."""

    AUTO = "auto"  # KVM where it works, else TCG
    KVM = "kvm"
    TCG = "tcg"


_PATH: Check = (is_path, "must be a path")
_NAME: Check = (is_path, "must be a name")
_MORE_THAN_0: Check = (lambda value: value > 0, "must be more than 0")
OVERHEAD_MB = 160  # of QEMU itself, besides the memory of the guest


class VmSettings(SettingsTable, frozen=True, kw_only=True):
    CHECKS: ClassVar[Mapping[str, Check]] = {
        "image": _PATH,
        "kernel": _PATH,
        "initrd": _PATH,
        "token_file": _PATH,
        "folder": _PATH,
        "qemu": (is_path, "must be a name or a path"),
        "machine": _NAME,
        "disk": _NAME,
        "network": _NAME,
        "memory_mb": (lambda value: 32 <= value <= 1 << 24, "must be from 32 to 16777216"),
        "cpus": (lambda value: 1 <= value <= 255, "must be from 1 to 255"),
        "guest_port": (lambda value: 0 < value < 65536, "must be from 1 to 65535"),
        "boot_timeout_s": _MORE_THAN_0,
        "start_timeout_s": _MORE_THAN_0,
        "settle_s": _MORE_THAN_0,
        "shutdown_timeout_s": _MORE_THAN_0,
    }

    image: FilePath | None = None  # the golden disk, qcow2; never written to
    kernel: FilePath | None = None  # for guests without a boot loader: a Linux kernel,
    initrd: FilePath | None = None  # its initial RAM disk,
    append: str = ""  # and its command line
    memory_mb: int = 2048
    cpus: int = 2
    machine: str = "q35"  # QEMU's -machine
    disk: str = "virtio-blk-pci"  # QEMU's -device of the disk
    network: str = "virtio-net-pci"  # QEMU's -device of the network card
    internet: bool = False  # whether the guest reaches anything but this machine's requests
    arguments: tuple[str, ...] = ()  # more for QEMU
    qemu: str = "qemu-system-x86_64"  # a name on PATH, or a path
    accelerator: Accelerator = Accelerator.AUTO
    guest_port: int = 5000  # where the guest agent listens inside
    token_file: FilePath | None = None  # the token of an agent that has one; None: it reads ours (QEMU's fw_cfg)
    reset: Reset = Reset.SNAPSHOT
    boot_timeout_s: Seconds = field(default=900.0, name="boot_timeout")  # from power on until the agent is ready
    start_timeout_s: Seconds = field(default=60.0, name="start_timeout")  # the same of a clone
    settle_s: Seconds | None = field(default=None, name="settle")  # between the agent's readiness and the snapshot
    shutdown_timeout_s: Seconds = field(
        default=60.0, name="shutdown_timeout"
    )  # before a guest is switched off (restart)
    folder: FilePath | None = None  # snapshots and kept disks; None: evalfleet/vm below the user's cache folder

    @property
    def request_mb(self) -> int:
        """What one guest may take of its host's memory."""
        return self.memory_mb + OVERHEAD_MB
