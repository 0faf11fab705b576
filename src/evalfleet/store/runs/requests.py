"""Requests: what people ask the owner of a run to do."""

from __future__ import annotations

from evalfleet.errors import NotFound
from evalfleet.model import JsonObject, Request, Run, Verb
from evalfleet.store import rows
from evalfleet.store.database.base import Database
from evalfleet.store.events import Events
from evalfleet.store.runs.queries import RunQueries


class RequestQueries:
    def __init__(self, database: Database) -> None:
        self._db = database

    def pending(self, run_id: str) -> list[Request]:
        """Requests that the owner has not obeyed yet, oldest first."""
        return [rows.request(row) for row in self._db.rows("select_pending_requests", run_id=run_id)]

    def answer(self, number: int) -> JsonObject | None:
        """The owner's answer to a request; None while it waits. Raises NotFound."""
        found = self._db.rows("select_request", number=number)
        if not found:
            raise NotFound(f"there is no request {number}")
        return rows.from_json(found[0]["answer"])


class Requests(RequestQueries):
    def __init__(self, database: Database, events: Events) -> None:
        super().__init__(database)
        self._events = events
        self._runs = RunQueries(database)

    def add(self, run_id: str, verb: Verb, args: JsonObject, asked_by: str) -> int:
        """Ask the owner of a run. Event `run.requested`. Returns the request's number. Raises NotFound."""
        with self._db.transaction():
            self._runs.get(run_id)
            found = self._db.rows(
                "insert_request",
                run_id=run_id,
                verb=str(verb),
                args=rows.to_json(args),
                asked_by=asked_by,
                now=self._db.now(),
            )
            self._events.write(run_id, "run.requested", {**args, "verb": verb, "by": asked_by})
            return found[0]["number"]

    def obey(self, run: Run, request: Request, answer: JsonObject) -> bool:
        """Mark a request as obeyed; False if it was before, or if the run is not ours any more."""
        with self._db.transaction():
            done = self._db.rows(
                "obey_request",
                run_id=run.id,
                epoch=run.epoch,
                number=request.number,
                now=self._db.now(),
                answer=rows.to_json(answer),
            )
            return bool(done)
