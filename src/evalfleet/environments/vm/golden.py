"""A golden image: a disk that is never written to, and the machine that it is booted in."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import struct
from pathlib import Path

import msgspec
from msgspec import Struct

from evalfleet import config
from evalfleet.environments.vm import accelerator
from evalfleet.environments.vm.settings import Accelerator, Reset, VmSettings
from evalfleet.errors import InputError, VmError

_LAYOUT = 1  # of what is kept on the host
_MAGIC = b"QFI\xfb"
# What is done with a guest, not what it is: no reason to prepare it again.
_NO_PART = ("reset", "boot_timeout", "start_timeout", "shutdown_timeout", "folder", "qemu", "accelerator")


class GoldenImage(Struct, frozen=True, kw_only=True):
    """The image and the machine, as they were found on this host."""

    settings: VmSettings
    qemu: str  # path of the program
    accelerator: Accelerator
    disk: Path
    disk_bytes: int  # the size that the guest sees
    files: list[list[str | int]]  # the identities of the disk, the kernel and whatever else the guest is made of
    key: str  # of everything that a snapshot depends on

    @property
    def folder(self) -> Path:
        """Where this host keeps what it made of the image."""
        name = re.sub(r"[^A-Za-z0-9._-]", "_", self.disk.stem)[:40]
        return cache_folder(self.settings) / f"{name}-{_short(str(self.disk))}-{self.key}"


def cache_folder(settings: VmSettings) -> Path:
    """The folder of all images on this host."""
    if settings.folder:
        return Path(settings.folder)
    environ = config.environment()
    cache = environ.get("XDG_CACHE_HOME") or os.path.join(environ.get("HOME") or "/var/tmp", ".cache")
    return Path(cache, "evalfleet", "vm")


def find(settings: VmSettings) -> GoldenImage:
    """Look for the image and for QEMU, and say which accelerator works.

    Raises:
        InputError: no image is named.
        VmError: something that it needs is not there; says what.
    """
    if settings.image is None:
        raise InputError('[vm]: no image is named; write image = "/path/to/golden.qcow2" in evalfleet.toml.')
    qemu = shutil.which(settings.qemu)
    if qemu is None:
        raise VmError(f"{settings.qemu} is not installed")
    for program in ("qemu-img", "setpriv"):
        if shutil.which(program) is None:
            raise VmError(f"{program} is not installed")
    disk = Path(os.path.realpath(settings.image))
    parts = [disk, *(Path(each) for each in (settings.kernel, settings.initrd, settings.token_file) if each)]
    files = [identity(part) for part in parts]
    size = _virtual_bytes(disk)
    used = accelerator.chosen(settings.accelerator, qemu)
    whole = {
        "layout": _LAYOUT,
        "files": files,
        "qemu": identity(Path(qemu)),
        "accelerator": used.value,
        # Those that begin with a copy of the running machine have one; the others have none.
        "running": settings.reset in (Reset.SNAPSHOT, Reset.CLOSE),
        "machine": {name: value for name, value in msgspec.to_builtins(settings).items() if name not in _NO_PART},
    }
    key = _short(json.dumps(whole, sort_keys=True))
    return GoldenImage(settings=settings, qemu=qemu, accelerator=used, disk=disk, disk_bytes=size, files=files, key=key)


def identity(path: Path) -> list[str | int]:
    """Return what tells one version of a file from another; its path comes first. Raises VmError.

    Its whole content would take minutes to read.
    """
    try:
        seen = os.stat(path)
    except OSError as error:
        raise VmError(f"{path} cannot be read: {error.strerror}") from None
    return [os.path.realpath(path), seen.st_size, seen.st_mtime_ns, seen.st_ino]


def _virtual_bytes(path: Path) -> int:
    try:
        with path.open("rb") as file:
            head = file.read(32)
    except OSError as error:
        raise VmError(f"the image {path} cannot be read: {error.strerror}") from None
    if len(head) < 32 or head[:4] != _MAGIC:
        raise VmError(f"the image {path} is not a qcow2 file; convert it: qemu-img convert -O qcow2 IMAGE NEW")
    size: int = struct.unpack(">Q", head[24:32])[0]
    return size


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]
