"""Attempts: reading."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from evalfleet.model import Attempt, Outcome
from evalfleet.store import rows
from evalfleet.store.attempts.records import Judged
from evalfleet.store.database.base import Database
from evalfleet.store.filters import FAR

_PAGE = 500


class AttemptQueries:
    def __init__(self, database: Database) -> None:
        self._db = database

    def all(self, run_id: str, task_number: int | None = None) -> list[Attempt]:
        """All attempts of a run, or of one of its tasks, by task and number."""
        if task_number is None:
            return [rows.attempt(row) for row in self._db.rows("select_attempts", run_id=run_id)]
        found = self._db.rows("select_attempts_of_task", run_id=run_id, task_number=task_number)
        return [rows.attempt(row) for row in found]

    def unended(self, run_id: str) -> list[Attempt]:
        """Attempts that a new owner must look after: live or collecting."""
        return [rows.attempt(row) for row in self._db.rows("select_unended", run_id=run_id)]

    def judged(self, run_id: str) -> Iterator[Judged]:
        """All judged attempts in the order in which they were judged, whatever the clocks of their hosts said. Read it to
        its end before the next call."""
        for row in self._db.stream("select_judged", run_id=run_id):
            yield rows.record(Judged, row, outcome=Outcome(row["outcome"]), failure=rows.failure(row))

    def shares(self, run_id: str) -> tuple[dict[str, list[float]], dict[str, float]]:
        """Of each host, how long its verdicts took as shares of what their tasks usually take; and that in seconds, by domain
        and for all ("")."""
        found = self._db.rows("select_verdict_times", run_id=run_id)
        seconds: dict[str, list[float]] = {}
        for row in found:
            for domain in {row["domain"], ""}:
                seconds.setdefault(domain, []).append(row["duration_s"])
        usual_s = {domain: sorted(values)[len(values) // 2] for domain, values in seconds.items()}
        shares: dict[str, list[float]] = {}
        for row in found:
            usual = row["expected_s"] or usual_s[row["domain"]]
            shares.setdefault(row["host"], []).append(row["duration_s"] / usual)
        return shares, usual_s

    def doubled(self, run_id: str) -> int:
        """How many second copies were made of running tasks."""
        return self._db.rows("count_doubled", run_id=run_id)[0]["count"]

    def hosts(self, run_id: str) -> list[str]:
        """The hosts on which the run has or had attempts, by name."""
        return sorted(row["host"] for row in self._db.rows("select_hosts_of_run", run_id=run_id))

    # For reports and views: plain rows, because a long run has many

    def all_rows(self, run_id: str) -> Iterator[dict[str, Any]]:
        """All attempts without their end records, by task and number, read in pages."""
        last = (0, 0)
        while page := self._db.rows(
            "select_attempt_rows", run_id=run_id, task_number=last[0], number=last[1], limit=_PAGE
        ):
            yield from map(dict, page)
            last = (page[-1]["task_number"], page[-1]["number"])

    def live(self, run_id: str) -> list[dict[str, Any]]:
        """Attempts that are leased, starting or running, with their task's key; oldest first."""
        return [dict(row) for row in self._db.rows("select_live_attempts", run_id=run_id)]

    def lanes(self, run_id: str, since: float = 0.0) -> Iterator[dict[str, Any]]:
        """All attempts that were live at `since` or began later, with their task's key, in the order of their claims."""
        for row in self._db.stream("select_lane_rows", run_id=run_id, since=since):
            yield dict(row)

    def sums(self, run_id: str) -> list[dict[str, Any]]:
        """Per outcome: count, cost_usd, duration_s, max_cost_usd."""
        return [dict(row) for row in self._db.rows("sum_attempts", run_id=run_id)]

    def worker_sums(self, run_id: str) -> list[dict[str, Any]]:
        """Per worker: assigned (attempts that it was given), completed (those that gave a verdict)."""
        return [dict(row) for row in self._db.rows("sum_workers", run_id=run_id)]

    def time_sums(self, run_id: str) -> dict[str, Any]:
        """How long parts of a run took, each as a count and a sum of seconds: `start` (process to readiness), `dispatch`
        (claim to process), `queue_wait` (start of the run to the first claim of a task), `attempt`. And of now, where there
        is one: `oldest_claim` and `next_expiry` of live attempts, `waits_since` of the oldest task that may start."""
        ended = dict(self._db.rows("sum_times", run_id=run_id)[0])
        return {**ended, **dict(self._db.rows("select_live_times", run_id=run_id, now=self._db.now())[0])}

    def failure_sums(self, run_id: str) -> list[dict[str, Any]]:
        """Per kind and blame: count (attempts), tasks, and key and evidence of the latest."""
        return [dict(row) for row in self._db.rows("sum_failures", run_id=run_id)]

    def failure_lines(self, run_id: str, limit: int = 5_000) -> list[dict[str, Any]]:
        """Per task, kind, blame and evidence: key, attempts, and when the latest ended; cancelled ones left out, latest first."""
        return [dict(row) for row in self._db.rows("select_failure_lines", run_id=run_id, limit=limit)]

    def last_failures(self, run_id: str, limit: int = 10) -> list[dict[str, Any]]:
        """The latest failed attempts, newest first; cancelled ones left out."""
        return [dict(row) for row in self._db.rows("select_last_failures", run_id=run_id, limit=limit)]

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
        at, task, number = before or (float(FAR), 0, 0)
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
