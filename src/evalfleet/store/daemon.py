"""What the processes of a home share beside runs and pools: the children of `serve`, and which process sends alerts."""

from __future__ import annotations

from evalfleet.store.database.base import Database
from evalfleet.store.home import process


class DaemonQueries:
    def __init__(self, database: Database) -> None:
        self._db = database

    def children(self, kind: str) -> dict[str, bool]:
        """The runs ("run") or pools ("pool") that a server keeps child processes for; of pools also whether machines in
        quarantine may prove themselves again."""
        return {row["name"]: bool(row["retry"]) for row in self._db.rows("select_children", kind=kind)}


class Daemon(DaemonQueries):
    def remember_child(self, kind: str, name: str, *, retry: bool) -> None:
        """A server keeps a child process for it, and the next server goes on. See `children`."""
        with self._db.transaction():
            self._db.rows("upsert_child", kind=kind, name=name, retry=int(retry))

    def forget_child(self, kind: str, name: str) -> None:
        """The server keeps no child process for it any more."""
        with self._db.transaction():
            self._db.rows("delete_child", kind=kind, name=name)

    def claim_alerts(self, token: str, lease_s: float) -> bool:
        """Become the process that sends alerts, or stay it for `lease_s` from now. False: another one is.

        A sender that has ended is replaced at once, one that cannot be asked (another machine) or does not renew when its lease ends.

        Args:
            token: tells one service from others, also of other processes.
        """
        if self._is_sent_by_another(token):
            return False  # asked every second by all who wait: that must write nothing
        with self._db.transaction():
            if self._is_sent_by_another(token):
                return False
            pid, born, boot = process.me()
            values = {"token": token, "pid": pid, "born": born, "boot": boot}
            self._db.rows("upsert_alert_sender", expires_at=self._db.now() + lease_s, **values)
            return True

    def _is_sent_by_another(self, token: str) -> bool:
        for row in self._db.rows("select_alert_sender"):
            if row["token"] != token and row["expires_at"] > self._db.now():
                return process.lives(row["pid"], row["born"], row["boot"]) is not False
        return False

    def release_alerts(self, token: str) -> None:
        """Let another process send alerts, if this one does."""
        with self._db.transaction():
            self._db.rows("delete_alert_sender", token=token)
