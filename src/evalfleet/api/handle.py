"""A run: to wait for, to steer, to read."""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from typing import Any, TypeVar

import anyio
import anyio.to_thread

from evalfleet import config
from evalfleet.api.results import TaskResult, result_of
from evalfleet.api.tasks import Folder
from evalfleet.engine import controller
from evalfleet.errors import InputError, Owned, Refused, WrongState
from evalfleet.hosts.base import single_error
from evalfleet.layout import Home
from evalfleet.model import Event, JsonObject, Run, RunState, Verb
from evalfleet.operations.steer import ask_or_do
from evalfleet.report.compare import Comparison, compare
from evalfleet.report.exports.folder import FORMATS, Exported, export
from evalfleet.report.html.page import page
from evalfleet.report.live import live_state, parallel_live, write_live
from evalfleet.report.reader import opened_run
from evalfleet.report.summary import Summary, summarise
from evalfleet.store.base.store import Store, StoreReader
from evalfleet.store.database.sqlite import open_store
from evalfleet.validation import sentence, suggestion

T = TypeVar("T")

_OVER = frozenset({RunState.COMPLETED, RunState.CANCELLED})
_FOLLOW_S = 0.2
_PAGE = 1000


def open_run(run: str = "latest", *, home: Folder | None = None) -> RunHandle:
    """A run of the home, by its id, a unique prefix of it, its name, or "latest".

    Raises NotFound, AmbiguousId, StoreError.
    """
    machine = config.load(home)
    with opened_run(machine.home, run) as (_, found):
        return RunHandle(machine, found)


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
        """queued, running, paused, completed or cancelled. After a crash it is running, though nobody drives it."""
        with self._opened() as (_, run):
            return run.state

    def summary(self) -> Summary:
        """Scores, coverage, failures and cost at this moment: the object that `evalfleet report --json` prints."""
        with self._opened() as (reader, run):
            return summarise(reader, run)

    def results(self) -> list[TaskResult]:
        """How every task stands, in the order of submission."""
        with self._opened() as (reader, run), reader.snapshot():
            return [result_of(task) for task in reader.tasks(run.id)]

    def events(self, after: int = 0) -> Iterator[Event]:
        """The events so far with numbers above `after`, in their order. Does not wait for more."""
        while True:
            with self._opened() as (reader, run):
                page = reader.events(run.id, after, _PAGE)
            yield from page
            if len(page) < _PAGE:
                return
            after = page[-1].number

    def wait(self, timeout: float | None = None) -> Summary:
        """Drive the run until it is completed, cancelled or paused, and return its summary.

        Where another process drives it, follow that one, and take over should it die. A paused run is resumed, as by
        `evalfleet resume`. Failed tasks raise nothing; the summary tells. Whatever ends the wait before its time
        (Ctrl-C, the time-out), running tasks go on and the run can be waited for again.

        Raises:
            TimeoutError: it takes longer than `timeout` seconds.
            Refused: called inside a running event loop; use `wait_async` there.
        """
        return _in_own_loop(lambda: self.wait_async(timeout), "wait_async")

    async def wait_async(self, timeout: float | None = None) -> Summary:  # noqa: ASYNC109 - the twin of `wait`
        """`wait` for asyncio. Cancelling it stops the driving and leaves running tasks running."""
        with anyio.move_on_after(timeout) as scope:
            await self._settle()
        if scope.cancelled_caught:
            raise TimeoutError(f"run {self.id} has not settled within {timeout:g} s; its tasks go on, wait again")
        return await anyio.to_thread.run_sync(self.summary)

    def cancel(self) -> None:
        """End the run: waiting and held tasks are cancelled, running ones are ended. One that is over stays as it is.

        Where another process drives it, that one is asked, and obeys within a second; `wait` returns when it is done.

        Raises Refused, inside a running event loop (use `cancel_async`) or if the other one does not answer.
        """
        _in_own_loop(self.cancel_async, "cancel_async")

    async def cancel_async(self) -> None:
        """`cancel` for asyncio."""
        if await anyio.to_thread.run_sync(lambda: self.state) in _OVER:
            return
        store = await self._open_store()
        try:
            with suppress(WrongState):  # it came to its end meanwhile
                owned, _ = await anyio.to_thread.run_sync(self._ask, store, Verb.CANCEL)
                if owned is not None:
                    with single_error():
                        await controller.cancel(self._settings, store, owned)
        finally:
            store.close()

    def retry(self, only: str | Sequence[str] = ()) -> list[str]:
        """Give tasks without a verdict a fresh allowance of attempts; returns their keys. `wait` drives them.

        Args:
            only: states (failed, held, cancelled) or task keys; none means all that failed or are held.

        Raises NotFound, WrongState, InputError; Refused if another process drives the run and does not answer.
        """
        words = [only] if isinstance(only, str) else list(only)
        store = open_store(self._settings.home)
        try:
            owned, answer = self._ask(store, Verb.RETRY, only=words)
            if owned is not None:
                store.leave(owned)
        finally:
            store.close()
        return list(answer["tasks"])

    def compare(self, other: RunHandle | str, *, allow_different: bool = False) -> Comparison:
        """Say whether this run is better or worse than `other`, or not distinguishable: as `compare OTHER THIS`.

        Args:
            other: the run to measure against: a handle, or an id, name or "latest" in the same home.
            allow_different: compare also tasks of one key that are not the same work, and studies.

        Raises NotFound; InputError, where they are the same run, have no task in common, or one is a study.
        """
        text = other.id if isinstance(other, RunHandle) else other
        with self._opened() as (reader, run):
            return compare(reader, reader.find_run(text), run, allow_different=allow_different)

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

    # Inside

    def _opened(self) -> AbstractContextManager[tuple[StoreReader, Run]]:
        return opened_run(self._settings.home, self.id)

    async def _open_store(self) -> Store:
        return await anyio.to_thread.run_sync(open_store, self._settings.home)

    def _ask(self, store: Store, verb: Verb, **args: Any) -> tuple[Run | None, JsonObject]:
        return ask_or_do(store, store.run(self.id), verb, args)

    async def _settle(self) -> None:
        """Return when the run has settled and nobody drives it any more."""
        store = await self._open_store()
        try:
            while store.run(self.id).state not in _OVER:
                taken = await anyio.to_thread.run_sync(self._take, store)
                if taken is not None:
                    await self._drive(store, taken)
                    return
                await self._follow(store)
                if store.run(self.id).state is RunState.PAUSED:
                    return
            await self._follow(store)  # whoever drove it still brings files home
        finally:
            store.close()

    def _take(self, store: Store) -> Run | None:
        """Own the run and let it run; None where somebody else drives it, or has just brought it to its end."""
        try:
            taken = store.take(self.id, controller.owner_name())
        except Owned:
            return None
        if taken.state in _OVER:
            store.leave(taken)
            return None
        return controller.reopen(store, taken)

    async def _drive(self, store: Store, taken: Run) -> None:
        with opened_run(self._settings.home, self.id) as (reader, run), single_error():
            spectator = _LiveFile(reader, run, Home(self._settings.home))
            await controller.drive(self._settings, store, taken, spectators=[spectator])
            await anyio.to_thread.run_sync(spectator.tick)

    async def _follow(self, store: Store) -> None:
        """Return when nobody drives the run any more."""
        while store.driver(self.id) is not None:  # noqa: ASYNC110 - it is another process, no event reaches us
            await anyio.sleep(_FOLLOW_S)


class _LiveFile:
    """Keeps parallel_live.json up to date, for tools that read files. Implements `Spectator`."""

    def __init__(self, reader: StoreReader, run: Run, home: Home) -> None:
        self._reader = reader
        self._run = run
        self._path = home.live_file(run.id)
        self._path.parent.mkdir(parents=True, exist_ok=True)

    def tick(self) -> None:
        write_live(self._path, parallel_live(live_state(self._reader, self._run)))


def _in_own_loop(function: Callable[[], Coroutine[Any, Any, T]], twin: str) -> T:
    import asyncio

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return anyio.run(function)
    raise Refused(f"this thread runs an event loop already; write `await run.{twin}()` there")
