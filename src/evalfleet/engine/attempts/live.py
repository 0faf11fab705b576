"""The attempts of a run that are in flight."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from evalfleet.engine.orders import LiveAttempt

_NONE: Mapping[str, LiveAttempt] = {}


class LiveAttempts(dict[str, LiveAttempt]):
    """By attempt id, and by host: a step must not walk all of them for each host. Only the dispatcher changes it, by `[]=` and
    `take`. It is read in the store's thread, so a claim in progress is included.
    """

    def __init__(self) -> None:
        super().__init__()
        self._by_host: dict[str, dict[str, LiveAttempt]] = {}
        self.moved: set[str] = set()  # hosts where one was added or taken; who follows them clears it

    def __setitem__(self, attempt_id: str, live: LiveAttempt) -> None:
        super().__setitem__(attempt_id, live)
        self._by_host.setdefault(live.attempt.host, {})[attempt_id] = live
        self.moved.add(live.attempt.host)

    def take(self, attempt_id: str) -> LiveAttempt | None:
        """Remove one that has ended; None if it is not live."""
        live = self.pop(attempt_id, None)
        if live is not None:
            there = self._by_host[live.attempt.host]
            del there[attempt_id]
            self.moved.add(live.attempt.host)
            if not there:
                del self._by_host[live.attempt.host]
        return live

    def at(self, host: str) -> Mapping[str, LiveAttempt]:
        """Those of one host, as they are while nothing changes."""
        return self._by_host.get(host, _NONE)

    def on(self, host: str) -> dict[str, LiveAttempt]:
        return dict(self.at(host))

    def hosts(self) -> set[str]:
        """The hosts with live attempts, including hosts that left the run."""
        return set(self._by_host)

    def counts(self) -> dict[str, int]:
        """How many attempts each host has."""
        return {host: len(there) for host, there in self._by_host.items()}

    def missing(self, host: str, known: Collection[str], before: float) -> list[str]:
        """The attempts that were claimed before `before` and that their host does not know."""
        there = self.at(host).items()
        return [one for one, live in there if one not in known and live.attempt.claimed_at <= before]
