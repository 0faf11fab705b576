"""The attempts of a run that are in flight."""

from __future__ import annotations

from collections.abc import Collection

from evalfleet.engine.orders import LiveAttempt


class LiveAttempts(dict[str, LiveAttempt]):
    """By the id of the attempt. Changed by the dispatcher only, and read in the store's thread, so that a claim just made is among them."""

    def on(self, host: str) -> dict[str, LiveAttempt]:
        return {one: live for one, live in self.items() if live.attempt.host == host}

    def hosts(self) -> set[str]:
        """Those that have some, whether they belong to the run any more or not."""
        return {live.attempt.host for live in self.values()}

    def missing(self, host: str, known: Collection[str], before: float) -> list[str]:
        """Those that their host should know, because they were claimed before then, and does not."""
        return [one for one, live in self.on(host).items() if one not in known and live.attempt.claimed_at <= before]
