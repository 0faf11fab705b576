"""Whether the applications of a desktop are at rest: nobody in its process tree is running or about to.

Applications take input one after the other, in their own time. A process that still has work to do is runnable, however
busy the machine is, and one that waits for a person is asleep; so the kernel knows when what was typed has been dealt
with, and no application needs to be asked.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

_LOOKS = 4  # in a row; between two threads that wake each other, both may be asleep for a moment
_PAUSE_S = 0.02
_ASLEEP = frozenset(
    (b"S", b"I", b"Z", b"X", b"T", b"t")
)  # waiting, idle, dead or stopped; running and waiting for a disk are not


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
    """Whether any thread of a process, or of those below it, has work to do.

    Looks at nobody else: what a look costs does not grow with the machine.
    """
    waiting = [str(top)]
    while waiting:
        pid = waiting.pop()
        for thread in _threads(pid):
            place = f"/proc/{pid}/task/{thread}"
            found = _read(f"{place}/stat").rpartition(b")")[2].split()
            if found and found[0] not in _ASLEEP:
                return True
            waiting += _read(f"{place}/children").decode().split()
    return False


def _threads(pid: str) -> list[str]:
    try:
        return os.listdir(f"/proc/{pid}/task")
    except OSError:  # it is gone
        return []


def _read(path: str) -> bytes:
    """Return what a file of a process says; nothing once the process is gone."""
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read()
    except OSError:
        return b""
