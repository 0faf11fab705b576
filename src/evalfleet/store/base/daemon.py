"""The part of a store that the processes of a home share beside runs and pools."""

from __future__ import annotations

from typing import Protocol


class DaemonReader(Protocol):
    def children(self, kind: str) -> dict[str, bool]:
        """The runs ("run") or pools ("pool") that a server keeps child processes for; of pools also whether machines in quarantine
        may prove themselves again."""
        ...


class DaemonWriter(Protocol):
    def remember_child(self, kind: str, name: str, *, retry: bool) -> None:
        """A server keeps a child process for it, and the next one goes on. See `children`."""
        ...

    def forget_child(self, kind: str, name: str) -> None: ...

    def claim_alerts(self, token: str, lease_s: float) -> bool:
        """Become the process that sends alerts, or stay it for `lease_s` from now. False: another one is.

        A sender that has ended is replaced at once, one that cannot be asked (another machine) or does not renew when its lease ends.

        Args:
            token: tells one service from others, of whatever process.
        """
        ...

    def release_alerts(self, token: str) -> None:
        """Let another process send alerts, if this one does."""
        ...
