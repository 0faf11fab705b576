"""A run: to wait for, to steer, to read."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress

import anyio
import anyio.to_thread
from msgspec.structs import replace

from evalfleet import config
from evalfleet.answers.attempts import ArtifactFile as Artifact
from evalfleet.answers.comparison import Comparison
from evalfleet.answers.runs import RunRow
from evalfleet.answers.server import Exported
from evalfleet.answers.summary import Summary
from evalfleet.answers.task_result import TaskResult
from evalfleet.api.tasks import Folder
from evalfleet.api.twins import in_own_loop, in_thread
from evalfleet.daemon.alerts.beside import alerts_beside
from evalfleet.daemon.otel.beside import telemetry_beside
from evalfleet.engine import controller
from evalfleet.errors import InputError, Owned, WrongState
from evalfleet.hosts.base import single_error
from evalfleet.layout import Home
from evalfleet.model import Event, Run, RunFilter, RunState
from evalfleet.operations.home import opened_for_writing
from evalfleet.operations.housekeeping import pins
from evalfleet.operations.runs import attempt_files, steer
from evalfleet.operations.runs import run_list as runs
from evalfleet.operations.runs.import_results import import_folder
from evalfleet.operations.runs.ownership import checked_tags
from evalfleet.operations.runs.rejudge import Rejudged, judge_run
from evalfleet.operations.runs.steer import Amended, Pausing
from evalfleet.operations.runs.tasks import list_tasks, task_filter
from evalfleet.report.compare import compare
from evalfleet.report.exports.folder import FORMATS, export
from evalfleet.report.html.page import page
from evalfleet.report.live import LiveState, live_state, parallel_live, write_live
from evalfleet.report.reader import opened_run
from evalfleet.report.summary import summarise
from evalfleet.store.open import open_store
from evalfleet.store.reader import StoreReader
from evalfleet.store.store import Store
from evalfleet.validation import sentence, suggestion

_FOLLOW_S = 0.2
_PROGRESS_S = 1.0
_PAGE = 1000


def open_run(run: str = "latest", *, home: Folder | None = None) -> RunHandle:
    """A run of the home, by its id, a unique prefix of it, its name, or "latest".

    Raises NotFound, AmbiguousId, StoreError.
    """
    machine = config.load(home)
    with opened_run(machine.home, run) as (_, found):
        return RunHandle(machine, found)


def list_runs(
    *,
    limit: int = 100,
    states: str | Sequence[str] = (),
    search: str | None = None,
    owner: str | None = None,
    project: str | None = None,
    tags: Mapping[str, str] | None = None,
    home: Folder | None = None,
) -> list[RunRow]:
    """The runs, newest first: the `runs` that `evalfleet status --json` prints.

    Args:
        limit: at most this many.
        states: only runs in these: queued, running, paused, completed, cancelled.
        search: only runs whose id or name contains this text.
        owner, project: only runs of this user, of this project.
        tags: only runs that have all of these.

    Raises InputError for an unknown state.
    """
    wanted = RunFilter(
        states=tuple(_words(states)), search=search, owner=owner, project=project, tags=checked_tags(tags or {})
    )
    return runs.list_runs(config.load(home).home, limit=limit, wanted=wanted).runs


def import_results(
    folder: Folder, format: str = "waa", *, name: str | None = None, home: Folder | None = None
) -> RunHandle:
    """Make a completed run of the results that another program left in a folder, as `evalfleet import`.

    The same results are imported once: again they return the run that exists. Raises InputError.
    """
    machine = config.load(home)
    return open_run(import_folder(machine, folder, format, name).run, home=machine.home)


class RunHandle:
    """A run. Holds nothing open: every question reads the present state."""

    def __init__(self, settings: config.Settings, run: Run) -> None:
        self.id = run.id
        self.name = run.name
        self._settings = settings

    def __repr__(self) -> str:
        return f"<evalfleet run {self.id} ({self.name}) in {self._settings.home}>"

    @property
    def state(self) -> RunState:
        """queued, running, paused, completed or cancelled. After a crash it is running, though no controller drives it."""
        with self._opened() as (_, run):
            return run.state

    def summary(self) -> Summary:
        """Scores, coverage, failures and cost at this moment: the object that `evalfleet report --json` prints."""
        with self._opened() as (reader, run):
            return summarise(reader, run)

    def progress(self) -> LiveState:
        """How far the run is: counts, scores, cost, workers, time left. What `wait` gives to its `progress`."""
        with self._opened() as (reader, run):
            return live_state(reader, run)

    def results(self) -> list[TaskResult]:
        """How every task stands, in the order of submission."""
        return self.tasks()

    def tasks(
        self,
        *,
        states: str | Sequence[str] = (),
        failed: bool = False,
        domain: str | None = None,
        sort: str = "number",
    ) -> list[TaskResult]:
        """How the tasks that match stand, as `evalfleet tasks`.

        Args:
            states: only tasks in these.
            failed: only tasks that ended without a verdict: failed and held.
            domain: only domains that match this pattern.
            sort: number, key, domain, state, score, duration or attempts; with "-" before it in reverse.

        Raises InputError.
        """
        wanted = task_filter(states=_words(states), failed=failed, domain=domain, sort=sort)
        with self._opened() as (reader, run):
            found = list_tasks(reader, run, wanted)
        return [replace(task, metrics=task.metrics or {}) for task in found]  # scripts ask for one without a look

    def log(self, key: str, stream: str = "stdout", *, attempt: int | None = None) -> str:
        """What a task has written to stdout or stderr so far, in its latest attempt or in that one.

        Of an attempt on another machine that is known once it has ended. Raises NotFound, InputError.
        """
        if stream not in attempt_files.STREAMS:
            raise InputError(f"there is no stream {stream!r}; write stdout or stderr")
        with self._opened() as (reader, run):
            found = attempt_files.find_attempt(reader, run, key, attempt)
            return attempt_files.log(self._home, key, found, stream)

    def artifacts(self, key: str, *, attempt: int | None = None) -> list[Artifact]:
        """The files that a task left, each with `path` and `size`, of its latest attempt or of that one. Raises NotFound."""
        with self._opened() as (reader, run):
            return attempt_files.artifacts(self._home, key, attempt_files.find_attempt(reader, run, key, attempt))

    def artifact(self, key: str, path: str, *, attempt: int | None = None) -> bytes:
        """The content of one file that a task left. Raises NotFound."""
        with self._opened() as (reader, run):
            found = attempt_files.find_attempt(reader, run, key, attempt)
            return b"".join(attempt_files.read_artifact(reader, self._home, key, found, path))

    def events(self, after: int = 0) -> Iterator[Event]:
        """The events so far with numbers above `after`, in their order. Does not wait for more."""
        while True:
            with self._opened() as (reader, run):
                page = reader.events.of_run(run.id, after, _PAGE)
            yield from page
            if len(page) < _PAGE:
                return
            after = page[-1].number

    def wait(self, timeout: float | None = None, *, progress: Callable[[LiveState], object] | None = None) -> Summary:
        """Drive the run until it is completed, cancelled or paused, and return its summary.

        Where another process drives it, follow that one, and take over should it die. A paused run is resumed, as by
        `evalfleet resume`. Failed tasks raise nothing; the summary tells. Where something ends the wait before its time
        (Ctrl-C, the time-out), running tasks go on and the run can be waited for again.

        Args:
            progress: is called with the run's progress about once a second and at the end, in another thread.

        Raises:
            TimeoutError: it takes longer than `timeout` seconds.
            Refused: called inside a running event loop; use `wait_async` there.
        """
        return in_own_loop(lambda: self.wait_async(timeout, progress=progress), "run.wait_async")

    async def wait_async(
        self,
        timeout: float | None = None,  # noqa: ASYNC109 - the twin of `wait`
        *,
        progress: Callable[[LiveState], object] | None = None,
    ) -> Summary:
        """`wait` for asyncio. Cancelling it stops the driving and leaves running tasks running."""
        with anyio.move_on_after(timeout) as scope:
            await self._settle(progress)
        if scope.cancelled_caught:
            raise TimeoutError(f"run {self.id} has not settled within {timeout:g} s; its tasks go on, wait again")
        return await anyio.to_thread.run_sync(self.summary)

    def cancel(self) -> None:
        """End the run: waiting and held tasks are cancelled, running ones are ended. One that is over stays as it is.

        Where another process drives it, that one is asked, and obeys within a second; `wait` returns when it is done.

        Raises Refused, inside a running event loop (use `cancel_async`) or if the other one does not answer.
        """
        in_own_loop(self.cancel_async, "run.cancel_async")

    async def cancel_async(self) -> None:
        """`cancel` for asyncio."""
        if await anyio.to_thread.run_sync(lambda: self.state.is_over):
            return
        store = await self._open_store()
        try:
            with suppress(WrongState), single_error():  # it may end meanwhile
                await steer.cancel(self._settings, store, store.runs.get(self.id))
        finally:
            store.close()

    def pause(self, reason: str | None = None) -> Pausing:
        """Start no more tasks; attempts that run end first. The next `wait` resumes the run."""
        with self._changing() as (store, run):
            return steer.pause(store, run, reason=reason)

    def retry(self, only: str | Sequence[str] = ()) -> list[str]:
        """Give tasks without a verdict new attempts; returns their keys. `wait` drives them.

        Args:
            only: states (failed, held, cancelled) or task keys; none means all that failed or are held.

        Raises NotFound, WrongState, InputError; Refused if another process drives the run and does not answer.
        """
        with self._changing() as (store, run):
            return steer.retry(store, run, _words(only)).tasks

    def hold(self, keys: str | Sequence[str], reason: str | None = None) -> list[str]:
        """Keep tasks from starting; returns the keys of those that changed. A running task is held after its attempt."""
        with self._changing() as (store, run):
            return steer.hold(store, run, _words(keys), reason=reason).tasks

    def release(self, keys: str | Sequence[str]) -> list[str]:
        """Let held tasks start again; returns their keys. `wait` drives them."""
        with self._changing() as (store, run):
            return steer.release(store, run, _words(keys)).tasks

    def amend(
        self, *, workers: int | None = None, budget_usd: float | None = None, priority: int | None = None
    ) -> Amended:
        """Change the number of workers, the budget or the priority, also while the run is driven."""
        with self._changing() as (store, run):
            return steer.amend(store, run, workers=workers, budget_usd=budget_usd, priority=priority)

    def quarantine(self, worker: str, reason: str | None = None) -> list[str]:
        """Give a worker or host no more work of this run; returns all that are in quarantine."""
        with self._changing() as (store, run):
            return steer.quarantine(store, run, worker, reason=reason).workers

    def unquarantine(self, worker: str, reason: str | None = None) -> list[str]:
        """Let a worker or host work again; returns those that are still in quarantine."""
        with self._changing() as (store, run):
            return steer.unquarantine(store, run, worker, reason=reason).workers

    def pin(self, reason: str | None = None) -> None:
        """Keep the run: nothing of it is removed by `prune` or [retention]."""
        with self._changing() as (store, run):
            pins.pin(store, run, reason=reason)

    def unpin(self) -> None:
        """Take the pin away. Raises WrongState where there is none."""
        with self._changing() as (store, run):
            pins.unpin(store, run)

    def judge(self, *, dry_run: bool = False) -> Rejudged:
        """Judge the failed attempts of a finished run again, as `evalfleet judge`. Raises WrongState, Owned."""
        return judge_run(self._settings, self.id, dry_run=dry_run)

    def compare(self, other: RunHandle | str, *, allow_different: bool = False) -> Comparison:
        """Say whether this run is better or worse than `other`, or not distinguishable: as `compare OTHER THIS`.

        Args:
            other: the run to measure against: a handle, or an id, name or "latest" in the same home.
            allow_different: compare also tasks of one key that are not the same work, and studies.

        Raises NotFound; InputError, where they are the same run, have no task in common, or one is a study.
        """
        text = other.id if isinstance(other, RunHandle) else other
        with self._opened() as (reader, run):
            return compare(reader, reader.runs.find(text), run, allow_different=allow_different)

    def export(self, to: Folder, format: str = "evalfleet") -> Exported:
        """Write the run, as it stands, to a new folder, whole or not at all; returns what was written.

        Args:
            to: the folder to make; an existing one must be empty.
            format: evalfleet, csv, junit or waa.

        Raises InputError, OSError.
        """
        if format not in FORMATS:
            raise InputError(sentence(f"there is no format {format!r}{suggestion(format, FORMATS)}"))
        with self._opened() as (reader, run):
            return export(reader, run, self._settings.home, os.fspath(to), format)

    def html(self) -> str:
        """The report as one self-contained page: what `evalfleet report --html` writes."""
        with self._opened() as (reader, run):
            return page(reader, run)

    summary_async = in_thread(summary)
    progress_async = in_thread(progress)
    results_async = in_thread(results)
    tasks_async = in_thread(tasks)
    log_async = in_thread(log)
    artifacts_async = in_thread(artifacts)
    artifact_async = in_thread(artifact)
    pause_async = in_thread(pause)
    retry_async = in_thread(retry)
    hold_async = in_thread(hold)
    release_async = in_thread(release)
    amend_async = in_thread(amend)
    quarantine_async = in_thread(quarantine)
    unquarantine_async = in_thread(unquarantine)
    pin_async = in_thread(pin)
    unpin_async = in_thread(unpin)
    judge_async = in_thread(judge)
    compare_async = in_thread(compare)
    export_async = in_thread(export)
    html_async = in_thread(html)

    # Inside

    @property
    def _home(self) -> Home:
        return Home(self._settings.home)

    def _opened(self) -> AbstractContextManager[tuple[StoreReader, Run]]:
        return opened_run(self._settings.home, self.id)

    def _changing(self) -> AbstractContextManager[tuple[Store, Run]]:
        return opened_for_writing(self._settings.home, self.id)

    async def _open_store(self) -> Store:
        return await anyio.to_thread.run_sync(open_store, self._settings.home)

    async def _settle(self, progress: Callable[[LiveState], object] | None) -> None:
        """Return when the run has settled and no controller drives it any more."""
        store = await self._open_store()
        try:
            while not store.runs.get(self.id).state.is_over:
                taken = await anyio.to_thread.run_sync(self._take, store)
                if taken is not None:
                    await self._drive(store, taken, progress)
                    return
                await self._follow(store, progress)
                if store.runs.get(self.id).state is RunState.PAUSED:
                    return
            await self._follow(store, progress)  # its controller still collects files
        finally:
            store.close()

    def _take(self, store: Store) -> Run | None:
        """Own the run and let it run; None where another process drives it, or has just brought it to its end."""
        try:
            taken = store.runs.take(self.id, controller.owner_name())
        except Owned:
            return None
        if taken.state.is_over:
            store.runs.leave(taken)
            return None
        return controller.reopen(store, taken)

    async def _drive(self, store: Store, taken: Run, progress: Callable[[LiveState], object] | None) -> None:
        with opened_run(self._settings.home, self.id) as (reader, run), single_error():
            spectator = _Spectator(reader, run, self._home, progress)
            beside = ExitStack()
            beside.enter_context(alerts_beside(self._settings, lambda _: None))
            beside.enter_context(telemetry_beside(self._settings, self.id, lambda _: None))
            try:
                await controller.drive(self._settings, store, taken, spectators=[spectator])
            finally:
                with anyio.CancelScope(shield=True):  # sending the last ones blocks for a moment
                    await anyio.to_thread.run_sync(beside.close)
            await anyio.to_thread.run_sync(spectator.show)

    async def _follow(self, store: Store, progress: Callable[[LiveState], object] | None) -> None:
        """Return when no controller drives the run any more."""
        shown_at = -_PROGRESS_S
        while store.runs.driver(self.id) is not None:
            if progress is not None and anyio.current_time() - shown_at >= _PROGRESS_S:
                shown_at = anyio.current_time()
                await anyio.to_thread.run_sync(self._report, progress)
            await anyio.sleep(_FOLLOW_S)

    def _report(self, progress: Callable[[LiveState], object]) -> None:
        progress(self.progress())


class _Spectator:
    """Keeps parallel_live.json up to date, for tools that read files, and reports progress. Implements `Spectator`."""

    def __init__(
        self, reader: StoreReader, run: Run, home: Home, progress: Callable[[LiveState], object] | None
    ) -> None:
        self._reader = reader
        self._run = run
        self._progress = progress
        self._shown_at = -_PROGRESS_S
        self._path = home.live_file(run.id)
        self._path.parent.mkdir(parents=True, exist_ok=True)

    def tick(self) -> None:
        state = self._written()
        if self._progress is not None and time.monotonic() - self._shown_at >= _PROGRESS_S:
            self._shown_at = time.monotonic()
            self._progress(state)

    def show(self) -> None:
        """The last moment."""
        state = self._written()
        if self._progress is not None:
            self._progress(state)

    def _written(self) -> LiveState:
        state = live_state(self._reader, self._run)
        write_live(self._path, parallel_live(state))
        return state


def _words(given: str | Sequence[str]) -> list[str]:
    return [given] if isinstance(given, str) else list(given)
