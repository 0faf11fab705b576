"""Tasks: reading."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from evalfleet.errors import NotFound
from evalfleet.model import Task, TaskState
from evalfleet.store import rows
from evalfleet.store.database.base import Database
from evalfleet.store.filters import any_of, containing

_PAGE = 500


class TaskQueries:
    def __init__(self, database: Database) -> None:
        self._db = database

    def get(self, run_id: str, key: str) -> Task:
        """The task of that key. Raises NotFound."""
        found = self._db.rows("select_task_by_key", run_id=run_id, key=key)
        if not found:
            raise NotFound(f"run {run_id} has no task {key!r}; `evalfleet report {run_id} --json` lists its tasks")
        return rows.task(found[0])

    def models(self, run_id: str) -> list[str | None]:
        """The models that the payloads of its tasks name; None among them where one names none."""
        return [row["model"] for row in self._db.rows("select_models", run_id=run_id)]

    def at(self, run_id: str, number: int) -> Task:
        """The task of that number. Raises NotFound."""
        found = self._db.rows("select_task", run_id=run_id, number=number)
        if not found:
            raise NotFound(f"run {run_id} has no task number {number}")
        return rows.task(found[0])

    def all(self, run_id: str) -> Iterator[Task]:
        """All tasks in the order of submission, read in pages."""
        after = 0
        while page := self._db.rows("select_tasks", run_id=run_id, after=after, limit=_PAGE):
            yield from (rows.task(row) for row in page)
            after = page[-1]["number"]

    def counts(self, run_id: str) -> dict[TaskState, int]:
        """The number of tasks in each state; every state is present."""
        found = {TaskState(row["state"]): row["count"] for row in self._db.rows("count_tasks", run_id=run_id)}
        return {state: found.get(state, 0) for state in TaskState}

    def waiting(self, run_id: str, most: int) -> int:
        """How many tasks are queued; more than `most` are not counted, so that it costs the same in a run of any length."""
        return self._db.rows("count_waiting", run_id=run_id, limit=most)[0]["count"]

    def due(self, run_id: str, most: int) -> int:
        """How many `candidates` there are; more than `most` are not counted."""
        return self._db.rows("count_due", run_id=run_id, now=self._db.now(), limit=most)[0]["count"]

    def total(self, run_id: str, most: int) -> int:
        """How many tasks the run has, of any state; more than `most` are not counted."""
        return self._db.rows("count_up_to", run_id=run_id, limit=most)[0]["count"]

    def candidates(self, run_id: str, limit: int, shard: tuple[int, int] | None = None) -> list[Task]:
        """Queued tasks that are due, best first. `shard` = (index, count) keeps to one worker's fixed share."""
        values: dict[str, Any] = {"run_id": run_id, "now": self._db.now(), "limit": limit}
        if shard is None:
            return [rows.task(row) for row in self._db.rows("select_candidates", **values)]
        values |= {"shard": shard[0], "workers": shard[1]}
        return [rows.task(row) for row in self._db.rows("select_shard_candidates", **values)]

    def next_due(self, run_id: str) -> float | None:
        """When the next waiting task becomes due; None if none waits."""
        return self._db.rows("select_next_due", run_id=run_id, now=self._db.now())[0]["due"]

    # For reports and views: plain rows, because a long run has many

    def result_rows(self, run_id: str) -> Iterator[dict[str, Any]]:
        """All tasks with what decided them, in the order of submission, read in pages."""
        after = 0
        while page := self._db.rows("select_results_page", run_id=run_id, after=after, limit=_PAGE):
            yield from map(dict, page)
            after = page[-1]["number"]

    def page(
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
        """Rows as of `result_rows` with task numbers above `after`, filtered."""
        found = self._db.rows(
            "select_tasks_page",
            run_id=run_id,
            after=after,
            limit=limit,
            states=any_of(states),
            domain=domain,
            key=key,
            search=containing(search),
        )
        return [dict(row) for row in found]

    def sums(self, run_id: str) -> list[dict[str, Any]]:
        """Per domain, state and retried (more than one attempt): count, score, successes, duration_s,
        timed (with a duration), untried (without an attempt)."""
        return [dict(row) for row in self._db.rows("sum_tasks", run_id=run_id)]

    def state_sums(self, run_id: str) -> list[dict[str, Any]]:
        """Per state: count, score, successes."""
        return [dict(row) for row in self._db.rows("sum_states", run_id=run_id)]

    def episode_sums(self, run_id: str) -> list[dict[str, Any]]:
        """Of a benchmark's run, per benchmark, task and domain: episodes, counted (in the valid score), successes, and
        of the scores that count score (their sum), squares (the sum of their squares), low, high."""
        return [dict(row) for row in self._db.rows("sum_episodes", run_id=run_id)]

    def episodes(self, run_id: str) -> list[dict[str, Any]]:
        """Of a benchmark's run, what the payload of each task says: key, benchmark, task, seed, max_steps."""
        return [dict(row) for row in self._db.rows("select_episodes", run_id=run_id)]

    def payloads(self, run_id: str) -> dict[str, str | None]:
        """The payload of each task as JSON, by key; None where it has none."""
        found = {row["key"]: row["payload"] for row in self._db.stream("select_payloads", run_id=run_id)}
        return {key: None if payload == "null" else payload for key, payload in found.items()}

    def durations(self, run_id: str, limit: int = 20_000) -> list[float]:
        """How long decided tasks (done or failed) took."""
        return [row["duration_s"] for row in self._db.rows("select_durations", run_id=run_id, limit=limit)]

    def held(self, run_id: str, limit: int) -> list[dict[str, Any]]:
        """The first held tasks: key and reason."""
        return [dict(row) for row in self._db.rows("select_held", run_id=run_id, limit=limit)]
