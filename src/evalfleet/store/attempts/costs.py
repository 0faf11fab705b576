"""What runs cost. Money is kept with the attempts; this only reads it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from evalfleet.store.database.base import Database


class CostQueries:
    def __init__(self, database: Database) -> None:
        self._db = database

    def total_usd(self, run_id: str) -> float:
        """Money of all attempts, with that of live ones so far."""
        return self._db.rows("sum_cost", run_id=run_id, now=self._db.now())[0]["cost_usd"]

    def of_attempts(self, run_id: str) -> Iterator[dict[str, Any]]:
        """Task_number, number, outcome, kind and cost_usd of every ended attempt, in the order of their ends. Read it to its end
        before the next call."""
        for row in self._db.stream("select_costs", run_id=run_id):
            yield dict(row)

    def stated(self, run_id: str, timeout_s: float) -> tuple[float | None, bool, float | None]:
        """The smallest `max_cost_usd` that a task states, whether some state none, and the shortest time limit of those.

        Args:
            timeout_s: of tasks that have none of their own.
        """
        [row] = self._db.rows("select_stated", run_id=run_id, timeout_s=timeout_s)
        return row["least"], bool(row["without"]), row["shortest_s"]

    def waste_usd(self, run_id: str) -> float:
        """Money for attempts that did not decide their task by a verdict."""
        return sum(self.waste_sums(run_id).values())

    def waste_sums(self, run_id: str) -> dict[str, float]:
        """The same by what became of them: failed, lost, preempted, cancelled, unused (another verdict counts)."""
        return {row["what"]: row["waste_usd"] for row in self._db.rows("sum_waste", run_id=run_id)}

    def idle_usd(self, run_id: str) -> float:
        """Money for the run's workers between their attempts, in no attempt's cost."""
        return self._db.rows("sum_idle", run_id=run_id, now=self._db.now())[0]["idle_usd"]
