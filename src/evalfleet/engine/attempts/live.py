"""The attempts of a run that are in flight."""

from __future__ import annotations

from collections.abc import Collection

from evalfleet.engine.orders import LiveAttempt


class LiveAttempts(dict[str, LiveAttempt]):
    """By attempt id. Only the dispatcher changes it. It is read in the store's thread, so a claim in progress is included."""

    def on(self, host: str) -> dict[str, LiveAttempt]:
        return {one: live for one, live in self.items() if live.attempt.host == host}

    def hosts(self) -> set[str]:
        """The hosts with live attempts, including hosts that left the run."""
        return {live.attempt.host for live in self.values()}

    def missing(self, host: str, known: Collection[str], before: float) -> list[str]:
        """The attempts that were claimed before `before` and that their host does not know."""
        return [one for one, live in self.on(host).items() if one not in known and live.attempt.claimed_at <= before]
