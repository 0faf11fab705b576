"""What is kept and what was removed: pinned runs, and the parts of finished runs that went to make room."""

from __future__ import annotations

from msgspec import Struct

from evalfleet.core.retention import Part
from evalfleet.store import rows
from evalfleet.store.database.base import Database
from evalfleet.store.events import Events


class Pin(Struct, frozen=True, kw_only=True):
    run_id: str
    pinned_at: float
    pinned_by: str
    reason: str | None


class Removal(Struct, frozen=True, kw_only=True):
    run_id: str
    part: Part
    name: str  # of the run
    removed_at: float
    files: int
    freed: int  # bytes
    reason: str


class FinishedRun(Struct, frozen=True, kw_only=True):
    """A run that is over and collected."""

    id: str
    name: str
    ended_at: float
    pinned: bool


class RetentionQueries:
    def __init__(self, database: Database) -> None:
        self._db = database

    def pin_of(self, run_id: str) -> Pin | None:
        found = self._db.rows("select_pin", run_id=run_id)
        return rows.record(Pin, found[0]) if found else None

    def finished(self) -> list[FinishedRun]:
        """Runs that are over and of which everything is collected, oldest first."""
        found = self._db.rows("select_finished_runs")
        return [rows.record(FinishedRun, row, pinned=bool(row["pinned"])) for row in found]

    def removals(self, run_id: str) -> list[Removal]:
        """What was removed of a run, oldest first."""
        return [_removal(row) for row in self._db.rows("select_removals", run_id=run_id)]

    def removed_run(self, text: str) -> Removal | None:
        """The run of that id or name that was removed as a whole."""
        found = self._db.rows("select_removed_run", run_id=text)
        return _removal(found[0]) if found else None

    def lock_owner(self, run_id: str) -> str | None:
        return self._db.lock_owner(run_id)


class Retention(RetentionQueries):
    def __init__(self, database: Database, events: Events) -> None:
        super().__init__(database)
        self._events = events

    def pin(self, run_id: str, by: str, reason: str | None = None) -> None:
        """Let nothing of the run be removed. Event `run.pinned`."""
        with self._db.transaction():
            self._db.rows("upsert_pin", run_id=run_id, now=self._db.now(), pinned_by=by, reason=reason)
            self._events.write(run_id, "run.pinned", {"by": by, "reason": reason})

    def unpin(self, run_id: str, by: str) -> bool:
        """Take the pin away. Event `run.unpinned`. False: there was none."""
        with self._db.transaction():
            if not self._db.rows("delete_pin", run_id=run_id):
                return False
            self._events.write(run_id, "run.unpinned", {"by": by})
            return True

    def lock(self, name: str, owner: str) -> str | None:
        """Keep others away from a run, or from a housekeeping task; its epoch does not change. Returns who holds it, None: we do."""
        return self._db.lock(name, owner)

    def unlock(self, name: str) -> None:
        self._db.unlock(name)

    def begin_removal(self, run_id: str, part: Part, reason: str) -> bool:
        """Write down that a part of a run goes, before it goes. False: it must stay, for the run is pinned, goes on or is not
        collected. Event `run.pruned`."""
        with self._db.transaction():
            if not self._db.rows("begin_removal", run_id=run_id, part=str(part), now=self._db.now(), reason=reason):
                return False
            self._events.write(run_id, "run.pruned", {"part": str(part), "reason": reason})
            return True

    def add_removed(self, run_id: str, part: Part, *, files: int, freed: int) -> None:
        with self._db.transaction():
            self._db.rows("add_removed", run_id=run_id, part=str(part), files=files, freed=freed)

    def forget_run(self, run_id: str, name: str) -> None:
        """Remove all that the store knows of a run whose removal has begun. Event `run.removed`, which stays."""
        with self._db.transaction():
            for statement in (
                "delete_requests_of_run",
                "delete_attempts_of_run",
                "delete_tasks_of_run",
                "delete_plans_of_run",
                "delete_events_of_run",
            ):
                self._db.rows(statement, run_id=run_id)
            self._db.rows("delete_run", run_id=run_id)
            self._events.write(run_id, "run.removed", {"name": name})


def _removal(row: rows.Row) -> Removal:
    return rows.record(Removal, row, part=Part(row["part"]))
