"""The folder of one emulator, locked for its life; and the clean-up after emulators that were killed."""

from __future__ import annotations

import fcntl
import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from evalfleet.emulator.machines import processes

PREFIX = "evalfleet-emulator-"
LOCK = "lock"


@contextmanager
def opened() -> Generator[Path]:
    """Make a folder for the VMs of this emulator; at the end nothing of it is left."""
    sweep()
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))
    with (folder / LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            yield folder
        finally:
            processes.end_all(folder)
            shutil.rmtree(folder, ignore_errors=True)


def sweep() -> None:
    """Clean up after emulators that were killed with -9: their lock is free, and processes of their VMs may still run."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        try:
            with (folder / LOCK).open() as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                processes.end_all(folder)
                shutil.rmtree(folder, ignore_errors=True)
        except OSError:
            continue  # in use, not ours, or just begun
