"""Whether the applications of a desktop are at rest: nobody in its process tree is running or about to.

Applications take input one after the other, in their own time. A process that still has work to do is runnable, however
busy the machine is, and one that waits for a person is asleep; so the kernel knows when what was typed has been dealt
with, and no application needs to be asked.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

_LOOKS = 4  # in a row; between two threads that wake each other, both may be asleep for a moment
_PAUSE_S = 0.02
_ASLEEP = frozenset("SIZXTt")  # waiting, idle, dead or stopped; running and waiting for a disk are not


def wait_for_rest(is_busy: Callable[[], bool], timeout_s: float) -> bool:
    """Return when nobody was busy at several looks in a row.

    Args:
        is_busy: looks once.
        timeout_s: when to give up; an application that is never at rest, such as a film, must not stop the episode.

    Returns:
        Whether rest was reached.
    """
    deadline = time.monotonic() + timeout_s
    quiet = 0
    while quiet < _LOOKS:
        if time.monotonic() > deadline:
            return False
        quiet = 0 if is_busy() else quiet + 1
        if quiet < _LOOKS:
            time.sleep(_PAUSE_S)
    return True


def anybody_busy(top: int) -> bool:
    """Whether any thread of a process, or of those below it, has work to do."""
    parents: dict[int, int] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (found := _stat(Path("/proc", entry, "stat"))) is not None:
            parents[int(entry)] = int(found[1])
    return any(state not in _ASLEEP for pid in _tree(top, parents) for state in _states(pid))


def _tree(top: int, parents: dict[int, int]) -> list[int]:
    children: dict[int, list[int]] = {}
    for pid, parent in parents.items():
        children.setdefault(parent, []).append(pid)
    found = [top]
    waiting = [top]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def _states(pid: int) -> Iterator[str]:
    """Yield the state of each thread."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:  # it is gone
        return
    for thread in threads:
        if (found := _stat(Path("/proc", str(pid), "task", thread, "stat"))) is not None:
            yield found[0]


def _stat(path: Path) -> list[str] | None:
    """Return the fields that follow the name: state, parent, …"""
    try:
        return path.read_text("ascii", "replace").rpartition(")")[2].split()
    except OSError:
        return None
