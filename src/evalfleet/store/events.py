"""Events: numbered facts that are only ever added. Numbers become visible in order."""

from __future__ import annotations

from evalfleet.model import Attempt, Event, JsonObject, Task
from evalfleet.store import rows
from evalfleet.store.database.base import Database
from evalfleet.store.filters import FAR


class EventQueries:
    def __init__(self, database: Database) -> None:
        self._db = database

    def of_run(self, run_id: str, after: int = 0, limit: int = 1000) -> list[Event]:
        """The events of one run with numbers above `after`, oldest first."""
        return [rows.event(row) for row in self._db.rows("select_events", run_id=run_id, after=after, limit=limit)]

    def before(self, run_id: str, before: int | None = None, limit: int = 1000) -> list[Event]:
        """The events of one run with numbers below `before`, newest first."""
        above = FAR if before is None else before
        found = self._db.rows("select_events_before", run_id=run_id, before=above, limit=limit)
        return [rows.event(row) for row in found]

    def all(self, after: int, limit: int = 1000) -> list[Event]:
        """The events of all runs with numbers above `after`, oldest first."""
        return [rows.event(row) for row in self._db.rows("select_all_events", after=after, limit=limit)]

    def last_number(self) -> int:
        """The number of the newest event; 0 if there is none."""
        return self._db.rows("select_last_number")[0]["number"]

    def last(self, run_id: str, type: str | None = None) -> Event | None:
        """The newest event of a run, or its newest of one type."""
        found = self._db.rows("select_last_event", run_id=run_id, type=type)
        return rows.event(found[0]) if found else None

    def alerts(self, after: int = 0) -> list[Event]:
        """All `alert.*` events, oldest first."""
        return [rows.event(row) for row in self._db.rows("select_alert_events", after=after)]

    def reaps(self, after: int = 0) -> list[Event]:
        """All `reap.*` events, oldest first: machines that were found without a purpose."""
        return [rows.event(row) for row in self._db.rows("select_reap_events", after=after)]

    def quarantines(self, run_id: str) -> list[Event]:
        """Which hosts were put into quarantine and taken out of it in a run, oldest first."""
        return [rows.event(row) for row in self._db.rows("select_quarantine_events", run_id=run_id)]

    def workers(self, run_id: str) -> list[Event]:
        """What happened to hosts (`worker.*`) and who took the run (`run.taken`), oldest first."""
        return [rows.event(row) for row in self._db.rows("select_worker_events", run_id=run_id)]


class Events(EventQueries):
    def note(
        self, run_id: str, type: str, data: JsonObject, task: str | None = None, attempt: str | None = None
    ) -> None:
        """Write one event that changes no state, such as `worker.suspected`."""
        with self._db.transaction():
            self._insert(run_id, type, data, task, attempt)

    def write(
        self, run_id: str, type: str, data: JsonObject, task: Task | str | None = None, attempt: Attempt | None = None
    ) -> None:
        """Write the event of a change, inside the transaction of that change. For the other parts of the store."""
        key = task.key if isinstance(task, Task) else task
        self._insert(run_id, type, data, key, attempt.id if attempt else None)

    def _insert(self, run_id: str, type: str, data: JsonObject, task: str | None, attempt: str | None) -> None:
        self._db.rows(
            "insert_event",
            run_id=run_id,
            now=self._db.now(),
            type=type,
            task=task,
            attempt=attempt,
            data=rows.to_json(data),
        )
