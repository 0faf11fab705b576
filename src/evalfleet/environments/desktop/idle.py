"""Whether the applications of a desktop are idle: no process in its tree is running or runnable.

Applications take input one after the other, in their own time. A process that still has work to do is runnable, however
busy the machine is, and one that waits for a person is asleep; so the kernel knows when what was typed has been dealt
with, and no application needs to be asked.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator

_KERNEL_TELLS_CHILDREN = os.path.exists(f"/proc/self/task/{os.getpid()}/children")
_LOOKS = 4  # in a row; between two threads that wake each other, both may be asleep for a moment
_PAUSE_S = 0.02
_ASLEEP = frozenset(
    (b"S", b"I", b"Z", b"X", b"T", b"t")
)  # waiting, idle, dead or stopped; running and waiting for a disk are not


def wait_for_rest(is_busy: Callable[[], bool], timeout_s: float) -> bool:
    """Return when no process was busy in several checks in a row.

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


def any_process_busy(top: int) -> bool:
    """Whether any thread of a process, or of those below it, has work to do.

    Looks at nobody else: what a look costs does not grow with the machine.
    """
    below = _below if _KERNEL_TELLS_CHILDREN else _below_by_parents
    return any(
        (found := _stat(f"/proc/{pid}/task/{thread}")) and found[0] not in _ASLEEP
        for pid in below(str(top))
        for thread in _threads(pid)
    )


def _below(top: str) -> Iterator[str]:
    """A process, and all below it."""
    waiting = [top]
    while waiting:
        pid = waiting.pop()
        yield pid
        for thread in _threads(pid):
            waiting += _read(f"/proc/{pid}/task/{thread}/children").decode().split()


def _below_by_parents(top: str) -> Iterator[str]:
    """The same where the kernel keeps no list of children: everybody is asked for its parent."""
    parents = {
        pid: found[1].decode() for pid in os.listdir("/proc") if pid.isdigit() and (found := _stat(f"/proc/{pid}"))
    }
    inside = {top}
    while more := {pid for pid, parent in parents.items() if parent in inside} - inside:
        inside |= more
    yield from inside


def _stat(place: str) -> list[bytes]:
    """Its state, its parent, and what else the kernel tells after its name; empty once it is gone."""
    return _read(f"{place}/stat").rpartition(b")")[2].split()


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
