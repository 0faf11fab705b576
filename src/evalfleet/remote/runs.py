"""The runs of another machine's server: `operations.sight.Runs`, spoken over its API."""

from __future__ import annotations

from fnmatch import fnmatchcase

from msgspec import convert, to_builtins
from msgspec.structs import replace

from evalfleet.answers.runs import RunFacts, RunPage, RunRow, TaskPage
from evalfleet.answers.server import Me
from evalfleet.answers.summary import Summary
from evalfleet.answers.task_result import TaskResult
from evalfleet.model import RunFilter
from evalfleet.operations.runs.run_list import Listing
from evalfleet.operations.runs.steer import Cancelled, Pausing
from evalfleet.operations.runs.tasks import TaskFilter, ordered
from evalfleet.remote.http import ServerApi, part

_PAGE = 1000


class RemoteRuns:
    def __init__(self, api: ServerApi) -> None:
        self._api = api

    def list_runs(self, limit: int, wanted: RunFilter) -> Listing:
        query = {
            "limit": min(limit, _PAGE),
            "state": wanted.states,
            "search": wanted.search,
            "owner": wanted.owner,
            "project": wanted.project,
            "tag": [f"{key}={value}" for key, value in wanted.tags.items()],
        }
        rows: list[RunRow] = []
        cursor: str | None = None
        while len(rows) < limit:
            page = self._api.get("runs", RunPage, {**query, "cursor": cursor})
            rows += [RunRow.copy_of(row) for row in page.runs]
            cursor = page.next
            if cursor is None:
                break
        return Listing(runs=rows[:limit], now=self._api.get("me", Me).now)

    def summary(self, run: str, *, results: bool) -> tuple[Summary, bool]:
        facts = self._api.get(f"runs/{part(run)}", RunFacts)
        found = convert(to_builtins(facts), Summary)
        return (replace(found, results=self._tasks(facts.run)) if results else found), facts.driven

    def tasks(self, run: str, wanted: TaskFilter) -> tuple[str, list[TaskResult]]:
        run_id = self._api.get(f"runs/{part(run)}", RunFacts).run
        found = self._tasks(run_id, wanted.states)
        return run_id, ordered(
            [task for task in found if wanted.domain is None or fnmatchcase(task.domain, wanted.domain)], wanted
        )

    def pause(self, run: str, reason: str | None) -> Pausing:
        return self._api.post(f"runs/{part(run)}/pause", {"reason": reason}, Pausing)

    def cancel(self, run: str) -> Cancelled:
        return self._api.post(f"runs/{part(run)}/cancel", {}, Cancelled)

    def _tasks(self, run_id: str, states: tuple[str, ...] = ()) -> list[TaskResult]:
        found: list[TaskResult] = []
        cursor: str | None = None
        while True:
            query = {"limit": _PAGE, "cursor": cursor, "state": states}
            page = self._api.get(f"runs/{part(run_id)}/tasks", TaskPage, query)
            found += page.tasks
            cursor = page.next
            if cursor is None:
                return found
