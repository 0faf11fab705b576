"""What it means for a run that hosts cannot be reached.

While one host is there, it carries the run, and the others are tried again with growing pauses. Only when none is there, and none
was for a while, does it count against the breaker: once per round in which every host failed again. A run that has no host at
all waits, and no host is blamed.
"""

from __future__ import annotations

from collections.abc import Collection

from evalfleet.engine.run_breaker import RunBreaker

_LONGEST_S = 60.0


class Reachability:
    """
    Args:
        hosts: those that the run has; read at each call, because they change.
        first_s: the first pause before a host is tried again; doubles each time.
        patience_s: for this long after the last contact with a host, or after it came, the backend is not blamed.
    """

    def __init__(self, breaker: RunBreaker, hosts: Collection[str], first_s: float, patience_s: float) -> None:
        self._breaker = breaker
        self._hosts = hosts
        self._first_s = first_s
        self._patience_s = patience_s
        self._present: set[str] = set()
        self._failures: dict[str, int] = {}  # in a row
        self._round: set[str] = set()  # hosts that failed since the last round was counted
        self.expects = False  # the fleet may have other hosts soon: those that it has do not count as all
        self._since: dict[str, float] = {}  # when a host came, or last answered

    def failed(self, host: str, message: str, now: float) -> float | None:
        """A host was not reached. Returns after how many seconds to try again; None: give up."""
        if host in self._present:
            self._present.discard(host)
            self._since[host] = now
        self._failures[host] = count = self._failures.get(host, 0) + 1
        self._round.add(host)
        pause_s = min(_LONGEST_S, self._first_s * 2 ** min(count, 10))
        if self.expects or self._present or host not in self._hosts or not self._round.issuperset(self._hosts):
            return pause_s
        if any(now - moment < self._patience_s for moment in self._since.values()):
            return pause_s
        self._round.clear()
        others = f"; none of the other {len(self._hosts) - 1} hosts is reached either" if len(self._hosts) > 1 else ""
        return self._breaker.backend_failed(message + others)

    def returned(self, host: str) -> None:
        if host in self._hosts:
            self._present.add(host)
        self._failures.pop(host, None)
        self._round.clear()
        self._breaker.backend_returned()

    def joined(self, host: str, now: float) -> None:
        """A host came while the run goes on: a new machine may need time."""
        self._since[host] = now

    def left(self, host: str) -> None:
        """A host left the run: it says nothing about those that remain."""
        self._present.discard(host)
        self._failures.pop(host, None)
        self._round.discard(host)
        self._since.pop(host, None)
