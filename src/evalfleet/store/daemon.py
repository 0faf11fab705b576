"""What the processes of a home share beside runs and pools: the children of `serve`, and which process sends alerts."""

from __future__ import annotations

from msgspec import Struct

from evalfleet.store.database.base import Database
from evalfleet.store.home import process


class ChildRow(Struct, frozen=True):
    """A run or pool that is looked after."""

    controller: str  # by which one; "": any may take it
    retry: bool = False  # machines in quarantine may prove themselves again


class DaemonQueries:
    def __init__(self, database: Database) -> None:
        self._db = database

    def children(self, kind: str) -> dict[str, ChildRow]:
        """The runs ("run") or pools ("pool") that a child process is kept for, and who does."""
        rows = self._db.rows("select_children", kind=kind)
        return {row["name"]: ChildRow(row["controller"], bool(row["retry"])) for row in rows}


class Daemon(DaemonQueries):
    def request_child(self, kind: str, name: str, controller: str = "", *, retry: bool = False) -> None:
        """Ask for a child process, also where one was asked for before: of that controller, or of any."""
        with self._db.transaction():
            self._db.rows("upsert_child", kind=kind, name=name, retry=int(retry), controller=controller)

    def claim_child(self, kind: str, name: str, controller: str, *, instead_of: str = "", retry: bool = False) -> bool:
        """Look after a run or pool from now on. False: another controller does.

        Args:
            instead_of: a controller that is gone, which looked after it.
        """
        with self._db.transaction():
            found = self._db.rows("select_child", kind=kind, name=name)
            if found and found[0]["controller"] not in ("", controller, instead_of):
                return False
            self.request_child(kind, name, controller, retry=retry)
            return True

    def release_child(self, kind: str, name: str, controller: str) -> None:
        """Leave it to any other controller, if that one still looks after it."""
        with self._db.transaction():
            self._db.rows("release_child", kind=kind, name=name, controller=controller)

    def forget_child(self, kind: str, name: str, controller: str = "") -> None:
        """Nothing is left to do for it, as far as that controller knows, which looked after it."""
        with self._db.transaction():
            self._db.rows("delete_child", kind=kind, name=name, controller=controller)

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
