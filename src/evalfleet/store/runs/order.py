"""In which order the tasks of a run start: the ranks that are kept with them."""

from __future__ import annotations

from evalfleet.core.statistics import stratify
from evalfleet.model import Policy
from evalfleet.store.database.base import Database


class TaskOrder:
    """Ranks the tasks of a run, inside the transaction of its caller."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def rank(self, run_id: str, name: str, policy: Policy) -> None:
        """Longest expected first. Where a budget may end the run early: so that each beginning is a fair sample."""
        if self._db.rows("select_has_history"):
            self._longest_first(run_id, name)
        if policy.budget_usd is not None and policy.study is None:
            projected = self._projected_usd(run_id, name)
            if stratify.is_scarce(policy.budget_usd, projected):
                self._stratify(run_id)

    def rank_again(self, run_id: str, name: str, policy: Policy) -> None:
        """Rank the waiting tasks for another budget."""
        self._db.rows("reset_ranks", run_id=run_id)
        self.rank(run_id, name, policy)

    def _longest_first(self, run_id: str, name: str) -> None:
        """A task without history counts as the median of its domain, else of all."""
        self._db.rows("expect_tasks", run_id=run_id, name=name)
        by_domain: dict[str, list[float]] = {}
        for row in self._db.stream("select_expected", run_id=run_id):
            by_domain.setdefault(row["domain"], []).append(row["expected_s"])
        known = sorted(value for values in by_domain.values() for value in values)
        if not known:
            return
        median = known[len(known) // 2]
        medians = {domain: values[len(values) // 2] for domain, values in by_domain.items()}
        ranks = (
            {"run_id": run_id, "number": row["number"], "rank": medians.get(row["domain"], median)}
            for row in self._db.rows("select_unexpected", run_id=run_id)
        )
        self._db.many("rank_task", ranks)

    def _projected_usd(self, run_id: str, name: str) -> float | None:
        """What the run should cost, by what its keys cost in earlier runs of its name; None where none is known."""
        (found,) = self._db.rows("project_cost", run_id=run_id, name=name)
        return found["mean_usd"] * found["tasks"] if found["mean_usd"] else None

    def _stratify(self, run_id: str) -> None:
        members = (
            stratify.Member(
                number=row["number"], key=row["key"], domain=row["domain"], begun=row["state"] not in ("queued", "held")
            )
            for row in self._db.stream("select_members", run_id=run_id)
        )
        found = stratify.places(members)
        self._db.many(
            "rank_task", ({"run_id": run_id, "number": number, "rank": 1 - place} for number, place in found.items())
        )
