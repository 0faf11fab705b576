"""Plans, and what earlier runs tell about the next one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from evalfleet.duration import HOUR_S
from evalfleet.errors import NotFound, WrongState
from evalfleet.model import JsonObject
from evalfleet.store import rows
from evalfleet.store.database.base import Database
from evalfleet.store.ids import new_id

_MOST_SAMPLES = 20_000
_MOST_MACHINES = 500


class StoredPlan(Struct, frozen=True, kw_only=True):
    id: str
    created_at: float
    run_id: str | None  # that took it
    content: JsonObject


class MachineRow(Struct, frozen=True, kw_only=True):
    """What became of one machine of a pool, also of a pool that is deleted."""

    name: str
    pool: str
    requested_at: float
    size: str
    region: str
    spot: bool
    usd_per_hour: float
    kept_usd_per_hour: float
    made_at: float | None
    ran_from: float | None
    ready_at: float | None
    allocated_since: float | None
    allocated_s: float
    taken: bool
    ended_at: float | None
    first_at: float | None  # the first claim of an attempt on it
    last_at: float | None  # the last end of one
    run_id: str | None  # whose attempts those are

    def cost_usd(self, now: float) -> float:
        """What it has cost until now: its time while allocated, and its disk and address as long as it exists."""
        exists = 0.0 if self.made_at is None else max(0.0, (self.ended_at or now) - self.made_at)
        return (self.seconds(now) * self.usd_per_hour + exists * self.kept_usd_per_hour) / HOUR_S

    def seconds(self, now: float) -> float:
        """How long it was allocated."""
        return self.allocated_s + (0.0 if self.allocated_since is None else max(0.0, now - self.allocated_since))


class PlanQueries:
    def __init__(self, database: Database) -> None:
        self._db = database

    def get(self, plan_id: str) -> StoredPlan:
        """Raises NotFound."""
        for row in self._db.rows("select_plan", id=plan_id):
            return _plan(row)
        raise NotFound(f"there is no plan {plan_id!r}; `evalfleet plan --list` shows those that there are")

    def newest(self, limit: int = 20) -> list[StoredPlan]:
        return [_plan(row) for row in self._db.rows("select_plans", limit=limit)]

    def of_run(self, run_id: str) -> StoredPlan | None:
        """The plan that a run follows."""
        return next((_plan(row) for row in self._db.rows("select_plan_of_run", run_id=run_id)), None)

    def machines(self, pool: str | None = None, since: float = 0.0) -> list[MachineRow]:
        """The newest machines of one pool or of all, those of deleted pools included."""
        found = self._db.rows("select_machines", pool=pool, since=since, limit=_MOST_MACHINES)
        return [rows.record(MachineRow, row, spot=bool(row["spot"]), taken=bool(row["taken"])) for row in found]

    def task_history(self, keys: Sequence[str], name: str) -> list[dict[str, Any]]:
        """Key, domain, run_id, same (a run of that name), worker_s and reported_usd of earlier verdicts, newest first."""
        found = self._db.rows("select_task_history", keys=rows.to_json(list(keys)), name=name, limit=_MOST_SAMPLES)
        return [dict(row) for row in found]

    def run_history(self, run_id: str) -> dict[str, Any]:
        """Started_at, ended_at, attempts, failed, failed_s and last_verdict_at of one run."""
        return dict(self._db.rows("sum_run_history", run_id=run_id)[0])

    def gaps(self, run_id: str) -> list[float]:
        """Seconds between two attempts on each worker of a run."""
        before: dict[str, float] = {}
        found: list[float] = []
        for row in self._db.rows("select_worker_times", run_id=run_id):
            if row["worker"] in before:
                found.append(max(0.0, row["claimed_at"] - before[row["worker"]]))
            before[row["worker"]] = row["ended_at"]
        return found

    def collected(self, run_id: str) -> tuple[float, int]:
        """Bytes of the files that a run brought home, and of how many attempts."""
        row = self._db.rows("sum_collected", run_id=run_id)[0]
        return row["bytes"], row["attempts"]


class Plans(PlanQueries):
    def add(self, content: JsonObject) -> StoredPlan:
        """Keep a plan. No event: nothing follows it yet."""
        with self._db.transaction():
            inserted = self._db.rows("insert_plan", id=new_id(6), now=self._db.now(), content=rows.to_json(content))
            return _plan(inserted[0])

    def take(self, plan_id: str, run_id: str) -> None:
        """Say that a run follows the plan. Raises NotFound; WrongState where another run does."""
        with self._db.transaction():
            found = self.get(plan_id)
            if not self._db.rows("take_plan", id=plan_id, run_id=run_id):
                raise WrongState(f"run {found.run_id} follows plan {plan_id} already; make a new one: `evalfleet plan`")


def _plan(row: Any) -> StoredPlan:
    return StoredPlan(
        id=row["id"], created_at=row["created_at"], run_id=row["run_id"], content=rows.from_json(row["content"])
    )
