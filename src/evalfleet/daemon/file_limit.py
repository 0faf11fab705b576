"""How many files a server may have open, and what it gives to the processes that it starts."""

from __future__ import annotations

import resource
from contextlib import suppress

_KEPT = 128  # open files for everything else: databases, machines, pages
_given: tuple[int, int] | None = None  # what this process had before it raised it


def raise_file_limit() -> int:
    """Let this process have as many open files as it may. Returns how many connections that allows."""
    global _given
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    _given = _given or (soft, hard)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft = hard
    return max(soft // 2, soft - _KEPT) if soft != resource.RLIM_INFINITY else 1 << 20


def lower_file_limit(pid: int) -> None:
    """Give a process that was started just now the limit that we had: its tasks are to find the same as without a server."""
    if _given is not None:
        with suppress(OSError, ValueError):
            resource.prlimit(pid, resource.RLIMIT_NOFILE, _given)
