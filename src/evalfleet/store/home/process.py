"""Which process it is: its pid, which is used again, and when it began on which boot of which machine."""

from __future__ import annotations

import os
from functools import cache


@cache
def boot_id() -> str:
    """The boot of this machine, and the container that numbers our processes."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return f"{file.read().strip()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def born(pid: int) -> str | None:
    """When the process began, as the kernel says it; None: there is no such process, or it is a zombie."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name of the program is in brackets, and may have blanks and brackets itself.
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in (b"Z", b"X") else fields[19].decode()


def me() -> tuple[int, str, str]:
    """Pid, start and boot of this process."""
    pid = os.getpid()
    return pid, born(pid) or "", boot_id()


def lives(pid: int, start: str, boot: str) -> bool | None:
    """Whether that very process runs; None: it belongs to another machine or boot, and we cannot see it."""
    return born(pid) == start if boot == boot_id() else None
