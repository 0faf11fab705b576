"""Wheels of what is installed here, so that hosts of tests need no index: the same files, packed again."""

from __future__ import annotations

import sys
from pathlib import Path

from evalfleet.hosts.wheels import pins_of, wheel_of


def base_python() -> str:
    """The interpreter below this environment: hosts have none of our packages."""
    return getattr(sys, "_base_executable", sys.executable)


def wheelhouse(folder: Path, *more: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name in [*pins_of(["evalfleet"]), *more]:
        if name != "evalfleet":  # that one evalfleet brings itself
            wheel = wheel_of(name)
            (folder / wheel.name).write_bytes(wheel.data)
    return folder
