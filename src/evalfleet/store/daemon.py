"""What the processes of a home share beside runs and pools: the children of `serve`, and which process sends alerts."""

from __future__ import annotations

from evalfleet.store.home.process import me
from evalfleet.store.runs.events import Recording


class Daemon(Recording):
    """The part of `Store` that the server and the alerts use."""

    def remember_child(self, kind: str, name: str, *, retry: bool) -> None:
        with self._db.transaction():
            self._db.rows("upsert_child", kind=kind, name=name, retry=int(retry))

    def forget_child(self, kind: str, name: str) -> None:
        with self._db.transaction():
            self._db.rows("delete_child", kind=kind, name=name)

    def claim_alerts(self, token: str, lease_s: float) -> bool:
        if self._is_sent_by_another(token):
            return False  # asked every second by all who wait: that must write nothing
        with self._db.transaction():
            if self._is_sent_by_another(token):
                return False
            pid, born, boot = me()
            values = {"token": token, "pid": pid, "born": born, "boot": boot}
            self._db.rows("upsert_alert_sender", expires_at=self.now() + lease_s, **values)
            return True

    def _is_sent_by_another(self, token: str) -> bool:
        for row in self._db.rows("select_alert_sender"):
            if row["token"] != token and row["expires_at"] > self.now():
                return self._db.lives(row["pid"], row["born"], row["boot"]) is not False
        return False

    def release_alerts(self, token: str) -> None:
        with self._db.transaction():
            self._db.rows("delete_alert_sender", token=token)
