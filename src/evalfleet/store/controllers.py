"""Controllers: the processes that take the runs of a store, and which run waits for which of them.

A controller enters itself and holds a lock as long as it lives, however it ends. What it looks after are its children, see `daemon`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct

from evalfleet.model import Run
from evalfleet.store import rows
from evalfleet.store.database.base import Database, Row
from evalfleet.store.home import process

_MOST_WAITING = 1000  # runs that are looked at at a time


class Liveness(StrEnum):
    ALIVE = "alive"
    ABSENT = "absent"  # its lock is free, which the restart of a server does to all for a moment, and it is on another machine
    DEAD = "dead"


class Controller(Struct, frozen=True, kw_only=True):
    """A process that takes queued runs, as it entered itself."""

    id: str
    member: str  # the folder that it uses; "": the home's first one
    host: str  # name of its machine
    path: str  # of the folder
    pid: int
    since: float
    runs: int  # that it drives at a time, at most
    born: str = ""
    boot: str = ""


class Need(Struct, frozen=True, kw_only=True):
    """What a run needs of the controller that drives it."""

    member: str | None = ""  # the only folder in which it can be driven; None: any
    why: str = ""  # what binds it to that folder
    secrets: tuple[str, ...] = ()
    user: str = ""  # whose secrets
    project: str = ""


class UntakenRun(Struct, frozen=True, kw_only=True):
    """A queued run that no controller looks after."""

    id: str
    pool: str | None
    need: Need
    owner: str = ""
    priority: int = 0


class ControllerQueries:
    def __init__(self, database: Database) -> None:
        self._db = database

    def all(self) -> list[tuple[Controller, Liveness]]:
        """Those that are entered, in the order in which they came. One that was killed is still there."""
        found = [Controller(**row) for row in self._db.rows("select_controllers")]
        return [(one, self._liveness(one)) for one in found]

    def _liveness(self, one: Controller) -> Liveness:
        if self._db.lock_owner(_lock(one.id)) is not None:
            return Liveness.ALIVE
        lives = process.lives(one.pid, one.born, one.boot)
        return Liveness.ABSENT if lives is None else Liveness.ALIVE if lives else Liveness.DEAD

    def waits(self) -> dict[str, dict[str, str]]:
        """By run that waits and by controller: why that one cannot drive it."""
        found: dict[str, dict[str, str]] = {}
        for row in self._db.rows("select_waits"):
            found.setdefault(row["run_id"], {})[row["controller"]] = row["why"]
        return found

    def need(self, run: Run) -> Need:
        """What a run needs. One of an older version can be driven in the home's first folder only."""
        found = self._db.rows("select_need", id=run.id)
        return _need(found[0] if found else None, run.owner, run.project)

    def untaken(self) -> list[UntakenRun]:
        """Queued runs that no controller looks after, oldest first."""
        return [
            UntakenRun(
                id=row["id"],
                pool=rows.from_json(row["policy"]).get("pool"),
                need=_need(row if row["run_id"] is not None else None, row["owner"], row["project"]),
                owner=row["owner"],
                priority=rows.from_json(row["policy"]).get("priority", 0),
            )
            for row in self._db.rows("select_untaken_runs", limit=_MOST_WAITING)
        ]

    def taken_owners(self) -> list[str]:
        """The owner of each run that a controller looks after."""
        return [row["owner"] for row in self._db.rows("select_taken_owners")]


class Controllers(ControllerQueries):
    def enter(self, one: Controller) -> None:
        """Enter a controller, which holds its lock from now on until it leaves, or this store is closed."""
        self._db.lock(_lock(one.id), f"process {one.pid} on {one.host}")
        pid, born, boot = process.me()
        known = {name: getattr(one, name) for name in ("id", "member", "host", "path", "since", "runs")}
        with self._db.transaction():
            self._db.rows("insert_controller", **known, pid=pid, born=born, boot=boot)

    def leave(self, id: str) -> None:
        """Take a controller that ends off the list. What it looked after, any other may."""
        with self._db.transaction():
            self._db.rows("release_children", controller=id)
            self.strike(id)
        self._db.unlock(_lock(id))

    def strike(self, id: str) -> None:
        """Take a controller that is dead off the list. Its claims still bear its name: its processes may live."""
        with self._db.transaction():
            self._db.rows("delete_controller", id=id)
            self._db.rows("delete_waits", controller=id)

    def set_waits(self, id: str, waits: Mapping[str, str]) -> None:
        """Say which runs a controller cannot drive, and why."""
        with self._db.transaction():
            self._db.rows("delete_waits", controller=id)
            for run_id, why in waits.items():
                self._db.rows("insert_wait", id=run_id, controller=id, why=why)


def _need(row: Row | None, user: str, project: str) -> Need:
    if row is None:
        return Need(why="it was submitted by an older version", user=user, project=project)
    secrets = tuple(rows.from_json(row["secrets"]))
    return Need(member=row["member"], why=row["why"], secrets=secrets, user=user, project=project)


def _lock(id: str) -> str:
    return f"controller-{id}"
