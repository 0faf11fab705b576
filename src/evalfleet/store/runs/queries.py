"""Runs: reading."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from evalfleet.duration import day
from evalfleet.errors import AmbiguousId, NotFound
from evalfleet.model import JsonObject, Run, RunState
from evalfleet.store import rows
from evalfleet.store.database.base import Database
from evalfleet.store.filters import FAR, any_of, beginning_with, containing


class RunQueries:
    def __init__(self, database: Database) -> None:
        self._db = database

    def get(self, run_id: str) -> Run:
        """The run of that id. Raises NotFound."""
        found = self._db.rows("select_run", id=run_id)
        if not found:
            raise self._absent(run_id)
        return rows.run(found[0])

    def find(self, text: str) -> Run:
        """A run by its id, its unique name, a unique prefix of its id, or `latest`. Raises NotFound, AmbiguousId.

        What fits whole goes before a prefix: the ids of runs are random, and one may begin with another run's name.
        """
        if text == "latest":
            found = self._db.rows("select_latest_run")
            if not found:
                raise NotFound("there is no run yet; `evalfleet run TASKS.toml` creates one")
            return rows.run(found[0])
        if not text:
            raise NotFound("no run is named; give its id, its name, or `latest`")
        found = self._db.rows("select_runs_like", prefix=beginning_with(text), name=text)
        exact = [row for row in found if row["id"] == text] or [row for row in found if row["name"] == text] or found
        if not exact:
            raise self._absent(text)
        if len(exact) > 1:
            ids = ", ".join(row["id"] for row in exact[:5])
            raise AmbiguousId(f"{text!r} fits {len(exact)} runs ({ids}); give more of the id")
        return rows.run(exact[0])

    def _absent(self, text: str) -> NotFound:
        removed = self._db.rows("select_removed_run", run_id=text)
        if removed:
            return NotFound(f"run {text!r} was removed by retention on {day(removed[0]['removed_at'])}")
        return NotFound(f"there is no run {text!r}; `evalfleet status` lists the runs")

    def newest(self, limit: int = 1000) -> list[Run]:
        """Runs, newest first."""
        return [rows.run(row) for row in self._db.rows("select_runs", limit=limit)]

    def page(
        self,
        *,
        before: int | None = None,
        limit: int = 100,
        states: Sequence[str] = (),
        search: str | None = None,
        owner: str | None = None,
        project: str | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> list[dict[str, Any]]:
        """Runs, newest first: `run`, and `place`, before which the next page begins."""
        found = self._db.rows(
            "select_runs_page",
            before=FAR if before is None else before,
            limit=limit,
            states=any_of(states),
            search=containing(search),
            owner=owner,
            project=project,
            tags=rows.to_json(list(tags.items())) if tags else None,
        )
        return [{"place": row["rowid"], "run": rows.run(row)} for row in found]

    def counts(self) -> dict[RunState, int]:
        """The number of runs in each state; every state is present."""
        found = {row["state"]: row["count"] for row in self._db.rows("count_runs")}
        return {state: found.get(state, 0) for state in RunState}

    def driver(self, run_id: str) -> str | None:
        """Who drives the run at this moment. None: it has no driver, although after a crash its state may still be running."""
        return self._db.lock_owner(run_id)

    def breaker(self, run_id: str) -> JsonObject | None:
        """The breaker's state, as it was stored last."""
        found = self._db.rows("select_breaker", id=run_id)
        return rows.from_json(found[0]["breaker"]) if found else None
