"""The processes of one emulated machine, including daemons that left their session: all die with the machine."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable
from pathlib import Path

PROC = Path("/proc")
PATIENCE_S = 5.0


def belonging(folder: Path) -> set[int]:
    """Return the processes whose environment or working folder names the machine's folder, and all their descendants.

    Every process of a machine begins with its home below that folder, and in it.
    """
    needle = os.fsencode(folder) + b"/"
    parents: dict[int, int] = {}
    found: set[int] = set()
    for entry in _processes():
        try:
            parents[entry] = int((PROC / str(entry) / "stat").read_bytes().rpartition(b")")[2].split()[1])
            where = os.fsencode(os.readlink(PROC / str(entry) / "cwd")) + b"/"
            if where.startswith(needle) or needle in (PROC / str(entry) / "environ").read_bytes():
                found.add(entry)
        except (OSError, ValueError, IndexError):
            continue  # it ended meanwhile, or is not ours to look at
    grown = True
    while grown:
        more = {pid for pid, parent in parents.items() if parent in found} - found
        grown = bool(more)
        found |= more
    return found - {os.getpid()}


def end_all(folder: Path) -> int:
    """Kill every process of a machine, and return how many there were. Blocks until they are gone."""
    deadline = time.monotonic() + PATIENCE_S
    seen: set[int] = set()
    while (left := belonging(folder)) and time.monotonic() < deadline:
        # Stopped first: what cannot run cannot start another one.
        _signal(left, signal.SIGSTOP)
        left |= belonging(folder)
        _signal(left, signal.SIGKILL)
        seen |= left
        time.sleep(0.005)
    return len(seen)


def _processes() -> Iterable[int]:
    try:
        return [int(entry.name) for entry in PROC.iterdir() if entry.name.isdigit()]
    except OSError:
        return []


def _signal(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue
