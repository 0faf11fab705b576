"""The readiness check of the golden image that `[waa] golden` names, and the disk that a container gets of it."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from evalfleet.benchmarks.waa.golden import manifest
from evalfleet.benchmarks.waa.golden.transfer import TransferFailed, copy, fetch_golden, shown, signed
from evalfleet.benchmarks.waa.settings import WaaSettings
from evalfleet.core.readiness import ReadinessCheck
from evalfleet.errors import InputError


def golden_folder(settings: WaaSettings, name: str) -> Path:
    return Path(settings.images).expanduser().absolute() / name


def wants_golden(settings: WaaSettings) -> bool:
    return settings.golden is not None and settings.storage is None


def storage_of(settings: WaaSettings, container: str) -> Path | None:
    """The folder of a container's disk; None where none is configured.

    Containers whose disk starts anew for every task share the golden image; each of the others has a copy.
    """
    if settings.storage is not None:
        return Path(settings.storage.replace("{container}", container)).expanduser().absolute()
    if settings.golden is None:
        return None
    folder = golden_folder(settings, settings.golden)
    return folder if not settings.keeps_writes else folder.with_name(f"{folder.name}.copies") / container


def make_copy(settings: WaaSettings, container: str) -> None:
    """Make the container's copy of the golden image, if it needs one. Raises TransferFailed."""
    to = storage_of(settings, container)
    if not wants_golden(settings) or settings.golden is None or to is None or (to / manifest.DISK).exists():
        return
    golden = manifest.read(golden_folder(settings, settings.golden))
    if golden is None:
        raise TransferFailed(f"there is no golden image {settings.golden}")
    partial = to.with_name(f"{to.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    for file in golden.files:
        copy(golden_folder(settings, settings.golden) / file.name, partial / file.name)
        (partial / file.name).chmod(0o644)
    partial.replace(to)


def golden_check(
    settings: WaaSettings, say: Callable[[str], None] | None, secrets: Mapping[str, str]
) -> ReadinessCheck:
    """Whether the golden image is there; where something may be done about it (`say`), it is brought.

    The image is checked by its hashes on the way, and is there whole or not at all.
    """
    name = settings.golden or ""
    folder = golden_folder(settings, name)
    begun = time.monotonic()
    remedy = f"evalfleet waa image build {name}, or set [waa] golden_from to where it is stored"
    try:
        found = manifest.read(folder)
        if found is None and (say is None or settings.golden_from is None):
            return ReadinessCheck(name="golden", holds=False, seen=f"there is no {folder}", remedy=remedy)
        if found is not None or say is None:
            return ReadinessCheck(name="golden", holds=True, seen=f"{name}, {_gb(found)}")
        source = signed(settings.golden_from or "", secrets.get(settings.golden_secret))
        partial = folder.with_name(f"{folder.name}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        found = fetch_golden(source, partial, say)
        manifest.protect(partial)
        partial.rename(folder)
    except (TransferFailed, InputError, OSError) as error:
        return ReadinessCheck(name="golden", holds=False, seen=str(error), remedy=remedy)
    took_s = time.monotonic() - begun
    seen = f"{name}, {_gb(found)}, brought from {shown(source)} in {took_s:.0f} s"
    return ReadinessCheck(name="golden", holds=True, seen=seen)


def _gb(golden: manifest.Golden | None) -> str:
    return f"{golden.bytes / 1e9:.1f} GB" if golden else ""
