"""What the dashboard asks of a store besides: pages of long lists, the events of all runs, and who may look at them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from evalfleet.model import AccessToken, Event, RunState
from evalfleet.store.runs import rows

if TYPE_CHECKING:
    from evalfleet.store.runs.queries import Database

_FAR = 1 << 62


class PageReader(Protocol):
    """A part of `StoreReader`."""

    def all_events(self, after: int, limit: int = 1000) -> list[Event]:
        """Those of all runs with numbers above `after`, in their order."""
        ...

    def last_number(self) -> int:
        """The number of the newest event; 0 if there is none."""
        ...

    def events_before(self, run_id: str, before: int | None = None, limit: int = 1000) -> list[Event]:
        """Newest first."""
        ...

    def alert_events(self, after: int = 0) -> list[Event]:
        """All `alert.*` events, oldest first."""
        ...

    def reap_events(self, after: int = 0) -> list[Event]:
        """All `reap.*` events, oldest first: what was found without a purpose."""
        ...

    def quarantine_events(self, run_id: str) -> list[Event]:
        """Who was quarantined and pardoned, oldest first."""
        ...

    def run_counts(self) -> dict[RunState, int]:
        """How many runs there are in each state; every state is present."""
        ...

    def runs_page(
        self, *, before: int | None = None, limit: int = 100, states: Sequence[str] = (), search: str | None = None
    ) -> list[dict[str, Any]]:
        """Newest first: `run`, and `place`, before which the next page begins."""
        ...

    def tasks_page(
        self,
        run_id: str,
        *,
        after: int = 0,
        limit: int = 100,
        states: Sequence[str] = (),
        domain: str | None = None,
        key: str | None = None,
        search: str | None = None,
    ) -> list[dict[str, Any]]:
        """Rows as of `result_rows`, with the tasks' numbers."""
        ...

    def lane_rows(self, run_id: str, since: float = 0.0) -> Iterator[dict[str, Any]]:
        """All attempts that were live at `since` or began later, with their task's key, in the order of their claims."""
        ...

    def failed_page(
        self,
        run_id: str,
        *,
        kind: str | None = None,
        blame: str | None = None,
        before: tuple[float, int, int] | None = None,
        limit: int = 100,
    ) -> list[dict[str, Any]]:
        """Failed attempts, newest first. `before`: moment, task number and number of the last one of the page before."""
        ...

    def tokens(self) -> list[AccessToken]:
        """Oldest first."""
        ...


class Paging:
    """Implements `PageReader`."""

    _db: Database

    def all_events(self, after: int, limit: int = 1000) -> list[Event]:
        return [rows.event(row) for row in self._db.rows("select_all_events", after=after, limit=limit)]

    def last_number(self) -> int:
        return self._db.rows("select_last_number")[0]["number"]

    def events_before(self, run_id: str, before: int | None = None, limit: int = 1000) -> list[Event]:
        found = self._db.rows(
            "select_events_before", run_id=run_id, before=_FAR if before is None else before, limit=limit
        )
        return [rows.event(row) for row in found]

    def alert_events(self, after: int = 0) -> list[Event]:
        return [rows.event(row) for row in self._db.rows("select_alert_events", after=after)]

    def reap_events(self, after: int = 0) -> list[Event]:
        return [rows.event(row) for row in self._db.rows("select_reap_events", after=after)]

    def quarantine_events(self, run_id: str) -> list[Event]:
        return [rows.event(row) for row in self._db.rows("select_quarantine_events", run_id=run_id)]

    def run_counts(self) -> dict[RunState, int]:
        found = {row["state"]: row["count"] for row in self._db.rows("count_runs")}
        return {state: found.get(state, 0) for state in RunState}

    def runs_page(
        self, *, before: int | None = None, limit: int = 100, states: Sequence[str] = (), search: str | None = None
    ) -> list[dict[str, Any]]:
        found = self._db.rows(
            "select_runs_page",
            before=_FAR if before is None else before,
            limit=limit,
            states=_any_of(states),
            search=_containing(search),
        )
        return [{"place": row["rowid"], "run": rows.run(row)} for row in found]

    def tasks_page(
        self,
        run_id: str,
        *,
        after: int = 0,
        limit: int = 100,
        states: Sequence[str] = (),
        domain: str | None = None,
        key: str | None = None,
        search: str | None = None,
    ) -> list[dict[str, Any]]:
        found = self._db.rows(
            "select_tasks_page",
            run_id=run_id,
            after=after,
            limit=limit,
            states=_any_of(states),
            domain=domain,
            key=key,
            search=_containing(search),
        )
        return [dict(row) for row in found]

    def lane_rows(self, run_id: str, since: float = 0.0) -> Iterator[dict[str, Any]]:
        for row in self._db.stream("select_lane_rows", run_id=run_id, since=since):
            yield dict(row)

    def failed_page(
        self,
        run_id: str,
        *,
        kind: str | None = None,
        blame: str | None = None,
        before: tuple[float, int, int] | None = None,
        limit: int = 100,
    ) -> list[dict[str, Any]]:
        at, task, number = before or (float(_FAR), 0, 0)
        found = self._db.rows(
            "select_failed_page",
            run_id=run_id,
            kind=kind,
            blame=blame,
            ended_at=at,
            task_number=task,
            number=number,
            limit=limit,
        )
        return [dict(row) for row in found]

    def tokens(self) -> list[AccessToken]:
        return [rows.access_token(row) for row in self._db.rows("select_tokens")]


def _any_of(words: Sequence[str]) -> str | None:
    return rows.to_json(list(words)) if words else None


def _containing(text: str | None) -> str | None:
    if not text:
        return None
    return "%" + text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") + "%"
