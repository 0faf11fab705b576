"""The reading half of a store, the same for every database: named statements in, records out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any, Protocol

from evalfleet.errors import AmbiguousId, NotFound
from evalfleet.model import (
    Attempt,
    AttemptState,
    Event,
    HostWork,
    JsonObject,
    Outcome,
    Pool,
    PoolHost,
    Request,
    Run,
    RunDemand,
    Task,
    TaskState,
)
from evalfleet.store.gpus.queries import GpuReading
from evalfleet.store.home.facts import Identity, identity_of
from evalfleet.store.runs import rows
from evalfleet.store.runs.judged import Judged
from evalfleet.store.runs.pages import Paging
from evalfleet.store.series.queries import SeriesReading

PAGE = 500


class Conflict(Exception):
    """A row with that key is there already."""


class Database(Protocol):
    """One connection to one kind of database. Statements are looked up by name in its dialect."""

    def rows(self, name: str, /, **values: Any) -> list[rows.Row]: ...

    def stream(self, name: str, /, **values: Any) -> Iterator[rows.Row]:
        """Like `rows`, one at a time, for answers that may not fit in memory."""
        ...

    def many(self, name: str, values: Iterator[dict[str, Any]]) -> None:
        """One statement for each of `values`, drawn one by one; raises Conflict at the first that cannot be."""
        ...

    def transaction(self) -> AbstractContextManager[None]:
        """A write transaction; inside another one a part of it, that is undone alone if it fails."""
        ...

    def snapshot(self) -> AbstractContextManager[None]: ...

    def changed(self) -> bool: ...

    def now(self) -> float: ...

    def own(self, run_id: str, owner: str) -> None:
        """Make sure that no other living process owns the run; raises Owned."""
        ...

    def disown(self, run_id: str) -> None: ...

    def driver(self, run_id: str) -> str | None: ...

    def lives(self, pid: int, born: str, boot: str) -> bool | None:
        """Whether that very process runs; None: it cannot be asked from here."""
        ...

    def close(self) -> None: ...


class Reading(GpuReading, Paging, SeriesReading):
    """Implements `StoreReader`."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def close(self) -> None:
        self._db.close()

    def now(self) -> float:
        return self._db.now()

    def snapshot(self) -> AbstractContextManager[None]:
        return self._db.snapshot()

    def changed(self) -> bool:
        return self._db.changed()

    def run(self, run_id: str) -> Run:
        found = self._db.rows("select_run", id=run_id)
        if not found:
            raise NotFound(f"there is no run {run_id!r}; `evalfleet status` lists the runs")
        return rows.run(found[0])

    def find_run(self, text: str) -> Run:
        if text == "latest":
            found = self._db.rows("select_latest_run")
            if not found:
                raise NotFound("there is no run yet; `evalfleet run TASKS.toml` makes one")
            return rows.run(found[0])
        if not text:
            raise NotFound("no run is named; give its id, its name, or `latest`")
        prefix = text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") + "%"
        found = self._db.rows("select_runs_like", prefix=prefix, name=text)
        exact = [row for row in found if row["id"] == text] or found
        if not exact:
            raise NotFound(f"there is no run {text!r}; `evalfleet status` lists the runs")
        if len(exact) > 1:
            ids = ", ".join(row["id"] for row in exact[:5])
            raise AmbiguousId(f"{text!r} fits {len(exact)} runs ({ids}); give more of the id")
        return rows.run(exact[0])

    def driver(self, run_id: str) -> str | None:
        return self._db.driver(run_id)

    def runs(self, limit: int = 1000) -> list[Run]:
        return [rows.run(row) for row in self._db.rows("select_runs", limit=limit)]

    def task(self, run_id: str, key: str) -> Task:
        found = self._db.rows("select_task_by_key", run_id=run_id, key=key)
        if not found:
            raise NotFound(f"run {run_id} has no task {key!r}; `evalfleet report {run_id} --json` lists its tasks")
        return rows.task(found[0])

    def task_at(self, run_id: str, number: int) -> Task:
        found = self._db.rows("select_task", run_id=run_id, number=number)
        if not found:
            raise NotFound(f"run {run_id} has no task number {number}")
        return rows.task(found[0])

    def tasks(self, run_id: str) -> Iterator[Task]:
        after = 0
        while page := self._db.rows("select_tasks", run_id=run_id, after=after, limit=PAGE):
            yield from (rows.task(row) for row in page)
            after = page[-1]["number"]

    def counts(self, run_id: str) -> dict[TaskState, int]:
        found = {TaskState(row["state"]): row["count"] for row in self._db.rows("count_tasks", run_id=run_id)}
        return {state: found.get(state, 0) for state in TaskState}

    def candidates(self, run_id: str, limit: int, shard: tuple[int, int] | None = None) -> list[Task]:
        values: dict[str, Any] = {"run_id": run_id, "now": self.now(), "limit": limit}
        if shard is None:
            return [rows.task(row) for row in self._db.rows("select_candidates", **values)]
        values |= {"shard": shard[0], "workers": shard[1]}
        return [rows.task(row) for row in self._db.rows("select_shard_candidates", **values)]

    def identity(self) -> Identity:
        return identity_of(self._db.rows("select_home")[0])

    def next_due(self, run_id: str) -> float | None:
        return self._db.rows("select_next_due", run_id=run_id, now=self.now())[0]["due"]

    def attempts(self, run_id: str, task_number: int | None = None) -> list[Attempt]:
        if task_number is None:
            return [rows.attempt(row) for row in self._db.rows("select_attempts", run_id=run_id)]
        found = self._db.rows("select_attempts_of_task", run_id=run_id, task_number=task_number)
        return [rows.attempt(row) for row in found]

    def unended(self, run_id: str) -> list[Attempt]:
        return [rows.attempt(row) for row in self._db.rows("select_unended", run_id=run_id)]

    def judged(self, run_id: str) -> Iterator[Judged]:
        for row in self._db.stream("select_judged", run_id=run_id):
            yield rows.record(Judged, row, outcome=Outcome(row["outcome"]), failure=rows.failure(row))

    def events(self, run_id: str, after: int = 0, limit: int = 1000) -> list[Event]:
        return [rows.event(row) for row in self._db.rows("select_events", run_id=run_id, after=after, limit=limit)]

    def requests(self, run_id: str) -> list[Request]:
        return [rows.request(row) for row in self._db.rows("select_pending_requests", run_id=run_id)]

    def answer(self, number: int) -> JsonObject | None:
        found = self._db.rows("select_request", number=number)
        if not found:
            raise NotFound(f"there is no request {number}")
        return rows.from_json(found[0]["answer"])

    def breaker(self, run_id: str) -> JsonObject | None:
        found = self._db.rows("select_breaker", id=run_id)
        return rows.from_json(found[0]["breaker"]) if found else None

    def attempt_sums(self, run_id: str) -> list[dict[str, Any]]:
        return [dict(row) for row in self._db.rows("sum_attempts", run_id=run_id)]

    def attempt_costs(self, run_id: str) -> list[dict[str, Any]]:
        return [dict(row) for row in self._db.rows("select_costs", run_id=run_id)]

    def stated_costs(self, run_id: str, timeout_s: float) -> tuple[float | None, bool, float | None]:
        [row] = self._db.rows("select_stated", run_id=run_id, timeout_s=timeout_s)
        return row["least"], bool(row["without"]), row["shortest_s"]

    def waste_usd(self, run_id: str) -> float:
        return sum(self.waste_sums(run_id).values())

    def idle_usd(self, run_id: str) -> float:
        return self._db.rows("sum_idle", run_id=run_id, now=self.now())[0]["idle_usd"]

    def waste_sums(self, run_id: str) -> dict[str, float]:
        return {row["what"]: row["waste_usd"] for row in self._db.rows("sum_waste", run_id=run_id)}

    # For reports and views: plain rows, because a long run has many

    def task_sums(self, run_id: str) -> list[dict[str, Any]]:
        return [dict(row) for row in self._db.rows("sum_tasks", run_id=run_id)]

    def state_sums(self, run_id: str) -> list[dict[str, Any]]:
        return [dict(row) for row in self._db.rows("sum_states", run_id=run_id)]

    def cost_usd(self, run_id: str) -> float:
        return self._db.rows("sum_cost", run_id=run_id, now=self.now())[0]["cost_usd"]

    def result_rows(self, run_id: str) -> Iterator[dict[str, Any]]:
        after = 0
        while page := self._db.rows("select_results_page", run_id=run_id, after=after, limit=PAGE):
            yield from map(dict, page)
            after = page[-1]["number"]

    def attempt_rows(self, run_id: str) -> Iterator[dict[str, Any]]:
        last = (0, 0)
        while page := self._db.rows(
            "select_attempt_rows", run_id=run_id, task_number=last[0], number=last[1], limit=PAGE
        ):
            yield from map(dict, page)
            last = (page[-1]["task_number"], page[-1]["number"])

    def episode_sums(self, run_id: str) -> list[dict[str, Any]]:
        return [dict(row) for row in self._db.rows("sum_episodes", run_id=run_id)]

    def episodes(self, run_id: str) -> list[dict[str, Any]]:
        return [dict(row) for row in self._db.rows("select_episodes", run_id=run_id)]

    def payloads(self, run_id: str) -> dict[str, str | None]:
        found = {row["key"]: row["payload"] for row in self._db.stream("select_payloads", run_id=run_id)}
        return {key: None if payload == "null" else payload for key, payload in found.items()}

    def live_attempts(self, run_id: str) -> list[dict[str, Any]]:
        return [dict(row) for row in self._db.rows("select_live_attempts", run_id=run_id)]

    def worker_sums(self, run_id: str) -> list[dict[str, Any]]:
        return [dict(row) for row in self._db.rows("sum_workers", run_id=run_id)]

    def worker_events(self, run_id: str) -> list[Event]:
        return [rows.event(row) for row in self._db.rows("select_worker_events", run_id=run_id)]

    def failure_sums(self, run_id: str) -> list[dict[str, Any]]:
        return [dict(row) for row in self._db.rows("sum_failures", run_id=run_id)]

    def failure_lines(self, run_id: str, limit: int = 5_000) -> list[dict[str, Any]]:
        return [dict(row) for row in self._db.rows("select_failure_lines", run_id=run_id, limit=limit)]

    def last_failures(self, run_id: str, limit: int = 10) -> list[dict[str, Any]]:
        return [dict(row) for row in self._db.rows("select_last_failures", run_id=run_id, limit=limit)]

    def durations(self, run_id: str, limit: int = 20_000) -> list[float]:
        return [row["duration_s"] for row in self._db.rows("select_durations", run_id=run_id, limit=limit)]

    def children(self, kind: str) -> dict[str, bool]:
        return {row["name"]: bool(row["retry"]) for row in self._db.rows("select_children", kind=kind)}

    def held(self, run_id: str, limit: int) -> list[dict[str, Any]]:
        return [dict(row) for row in self._db.rows("select_held", run_id=run_id, limit=limit)]

    def last_event(self, run_id: str, type: str | None = None) -> Event | None:
        found = self._db.rows("select_last_event", run_id=run_id, type=type)
        return rows.event(found[0]) if found else None

    def pool(self, name: str) -> Pool:
        found = self._db.rows("select_pool", name=name)
        if not found:
            known = ", ".join(pool.name for pool in self.pools())
            raise NotFound(f"there is no pool {name!r}; known pools: {known or 'none'}")
        return rows.pool(found[0])

    def pools(self) -> list[Pool]:
        return [rows.pool(row) for row in self._db.rows("select_pools")]

    def pool_owner(self, name: str) -> str | None:
        return self._db.driver(f"pool-{name}")

    def hosts(self, pool: str, *, gone: bool = False) -> list[PoolHost]:
        return [rows.host(row) for row in self._db.rows("select_hosts", pool=pool, gone=gone)]

    def pool_tallies(self, pool: Pool) -> dict[str, Any]:
        values = {"pool": pool.name, "since": pool.created_at}
        found = self._db.rows("select_host_tallies", **values, now=self._db.now())
        hosts = {row["host"]: dict(row) for row in found}
        return {**dict(self._db.rows("select_pool_tallies", **values)[0]), "hosts": hosts}

    def host_loads(self) -> dict[str, int]:
        return {row["host"]: row["attempts"] for row in self._db.rows("select_host_loads")}

    def host_work(self) -> dict[str, list[HostWork]]:
        found: dict[str, list[HostWork]] = {}
        for row in self._db.rows("select_host_work"):
            work = HostWork(run_id=row["run_id"], key=row["key"], state=AttemptState(row["state"]))
            found.setdefault(row["host"], []).append(work)
        return found

    def pool_demand(self, pool: str) -> list[RunDemand]:
        return [
            rows.record(RunDemand, row, open=bool(row["open"]), driven=self._db.driver(row["run_id"]) is not None)
            for row in self._db.rows("select_pool_demand", pool=pool)
        ]
