"""What it means for a run that hosts cannot be reached.

While one host is there, it carries the run, and the others are tried again with growing pauses. Only when none is there, and none
was for a while, does it count against the breaker: once per round in which every host failed again.
"""

from __future__ import annotations

from collections.abc import Collection

from evalfleet.engine.guard import Guard

_LONGEST_S = 60.0


class Reach:
    """
    Args:
        first_s: the first pause before a host is tried again; doubles each time.
        patience_s: for how long after the last contact nothing is held against the backend.
    """

    def __init__(self, guard: Guard, hosts: Collection[str], first_s: float, patience_s: float) -> None:
        self._guard = guard
        self._hosts = hosts
        self._first_s = first_s
        self._patience_s = patience_s
        self._present: set[str] = set()
        self._failures: dict[str, int] = {}
        self._rounds = 0
        self._seen_at: float | None = None

    def failed(self, host: str, message: str, now: float) -> float | None:
        """A host was not reached. Returns after how many seconds to try again; None: give up."""
        if host in self._present:
            self._present.discard(host)
            self._seen_at = now
        self._failures[host] = count = self._failures.get(host, 0) + 1
        pause_s = min(_LONGEST_S, self._first_s * 2 ** min(count, 10))
        if self._present or len(self._failures) < len(self._hosts):
            return pause_s
        if self._seen_at is not None and now - self._seen_at < self._patience_s:
            return pause_s
        if min(self._failures.values()) <= self._rounds:
            return pause_s
        self._rounds = min(self._failures.values())
        others = f"; none of the other {len(self._hosts) - 1} hosts is reached either" if len(self._hosts) > 1 else ""
        return self._guard.backend_failed(message + others)

    def returned(self, host: str) -> None:
        self._present.add(host)
        self._failures.pop(host, None)
        self._rounds = 0
        self._guard.backend_returned()
