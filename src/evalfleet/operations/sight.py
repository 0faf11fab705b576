"""The runs that a command is about: of a home on this machine, or of another machine's server (`remote.runs`).

Commands that can do either ask for `Runs` and know no difference. What takes or gives records of the store stays with `operations`' other
functions; here go answers only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from evalfleet import config

if TYPE_CHECKING:
    from evalfleet.answers.summary import Summary
    from evalfleet.answers.task_result import TaskResult
    from evalfleet.model import RunFilter
    from evalfleet.operations.runs import steer
    from evalfleet.operations.runs.run_list import Listing
    from evalfleet.operations.runs.tasks import TaskFilter


class Runs(Protocol):
    """Every `run` is an id, a unique prefix of one, a name or `latest`. All raise NotFound, InputError, Refused."""

    def list_runs(self, limit: int, wanted: RunFilter) -> Listing: ...

    def summary(self, run: str, *, results: bool) -> tuple[Summary, bool]:
        """And whether a controller drives the run."""
        ...

    def tasks(self, run: str, wanted: TaskFilter) -> tuple[str, list[TaskResult]]:
        """The run's id, and its tasks."""
        ...

    def pause(self, run: str, reason: str | None) -> steer.Pausing: ...

    def cancel(self, run: str) -> steer.Cancelled: ...


class HomeRuns:
    """The runs of a home on this machine."""

    def __init__(self, settings: config.Settings) -> None:
        self._settings = settings

    def list_runs(self, limit: int, wanted: RunFilter) -> Listing:
        from evalfleet.operations.runs.run_list import list_runs

        return list_runs(self._settings.home, limit=limit, wanted=wanted)

    def summary(self, run: str, *, results: bool) -> tuple[Summary, bool]:
        from evalfleet.report.reader import opened_run
        from evalfleet.report.summary import summarise

        with opened_run(self._settings.home, run) as (store, found):
            return summarise(store, found, results=results), store.runs.driver(found.id) is not None

    def tasks(self, run: str, wanted: TaskFilter) -> tuple[str, list[TaskResult]]:
        from evalfleet.operations.runs.tasks import list_tasks
        from evalfleet.report.reader import opened_run

        with opened_run(self._settings.home, run) as (store, found):
            return found.id, list_tasks(store, found, wanted)

    def pause(self, run: str, reason: str | None) -> steer.Pausing:
        from evalfleet.operations.home import opened_for_writing
        from evalfleet.operations.runs import steer

        with opened_for_writing(self._settings.home, run) as (store, found):
            return steer.pause(store, found, reason=reason)

    def cancel(self, run: str) -> steer.Cancelled:
        import anyio

        from evalfleet.operations.home import opened_for_writing
        from evalfleet.operations.runs import steer

        with opened_for_writing(self._settings.home, run) as (store, found):
            return anyio.run(steer.cancel, self._settings, store, found)
