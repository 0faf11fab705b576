"""The Python interface, over the same engine as the command line. See docs/reference/python.md.

::

    import evalfleet

    run = evalfleet.submit([{"key": "a", "command": ["python3", "agent.py"]}], workers=4)
    summary = run.wait()
    for result in run.results():
        print(result.key, result.state, result.score)

Submitting is durable: from then on the run exists, whatever becomes of this process. `RunHandle.wait` drives it; a process
that ends before leaves its running tasks running, and `open_run(id).wait()` or ``evalfleet resume ID`` goes on.

Nothing here installs signal handlers of its own. A handle may be used by several threads.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, TypedDict, TypeVar, Unpack, cast

import anyio
import anyio.to_thread

from evalfleet import config, taskfile, taskrow
from evalfleet.backends.base import single_error
from evalfleet.engine import controller, submitting
from evalfleet.engine.asking import ask_or_do
from evalfleet.errors import InputError, Owned, Refused, TaskFileError, WrongState
from evalfleet.layout import Home
from evalfleet.model import Event, Failure, JsonObject, Run, RunState, TaskState, Verb
from evalfleet.model import Task as StoredTask
from evalfleet.report.live import live_state, parallel_live, write_live
from evalfleet.report.opening import opened_run
from evalfleet.report.summary import Summary, summarise
from evalfleet.schema import sentence
from evalfleet.store.base import Store, StoreReader
from evalfleet.store.sqlite import open_store

__all__ = ["RunHandle", "RunSettings", "Summary", "Task", "TaskResult", "open_run", "submit"]

T = TypeVar("T")
Duration = str | float | timedelta  # "15m", 900.0 or timedelta(minutes=15)
Folder = str | os.PathLike[str]

_OVER = frozenset({RunState.COMPLETED, RunState.CANCELLED})
_FOLLOW_S = 0.2
_PAGE = 1000
_FIELDS = {name: f"{name}_s" for name in ("timeout", "stall", "start_timeout", "retry_base", "retry_cap")}
_FIELDS["result"] = "result_required"


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One task, with the words of the task file.

    Example:
        >>> Task(key="notepad_1", command=["python3", "agent.py"], timeout="10m").key
        'notepad_1'
    """

    key: str
    command: Sequence[str]
    domain: str | None = None
    env: Mapping[str, str] | None = None
    secrets: Sequence[str] | None = None  # names; the values come from this process's environment
    payload: Any = None
    timeout: Duration | None = None
    stall: Duration | None = None
    start_timeout: Duration | None = None
    requests: Mapping[str, int] | None = None  # gpus, memory_mb


class RunSettings(TypedDict, total=False):
    """What `submit` takes besides: the keys of `[run]` in the task file."""

    attempts: int
    timeout: Duration
    stall: Duration
    start_timeout: Duration
    budget_usd: float
    accept: float
    exit_is_verdict: bool
    timeout_is_verdict: bool
    result: str
    progress: str
    files: Sequence[str]
    breaker: bool
    max_lost: int
    retry_base: Duration
    retry_cap: Duration
    distribution: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskResult:
    """How one task stands."""

    key: str
    domain: str
    state: TaskState
    score: float | None  # of its verdict, 0 to 1
    success: bool | None
    steps: int | None
    metrics: dict[str, Any] = field(default_factory=dict[str, Any])
    duration_s: float | None  # of the attempt that decided it
    attempts: int
    worker: str | None
    failure: Failure | None  # kind, blame and evidence, where it has no verdict
    reason: str | None  # why it failed or is held


def submit(
    tasks: Iterable[Mapping[str, Any] | Task] | Folder,
    *,
    name: str | None = None,
    workers: int | None = None,
    home: Folder | None = None,
    folder: Folder | None = None,
    **settings: Unpack[RunSettings],
) -> RunHandle:
    """Store a run with all its tasks, or nothing. It is driven by `RunHandle.wait`.

    Args:
        tasks: mappings with the keys of the task file, `Task` objects, or the path of a task file.
        name: what to call the run; else the file's name, or "python".
        workers: tasks at a time; else the file's, or as many as this machine has CPUs.
        home: where everything is kept; else EVALFLEET_HOME, or ~/.evalfleet.
        folder: where the tasks start; else the task file's folder, or the current one.
        settings: the keys of `[run]` in the task file. What is given here goes before what the file says.

    Raises:
        InputError: a task or setting is wrong, a key stands twice, a secret is not set; nothing is stored.
        StoreError: the home cannot be used.

    Example:
        >>> run = submit([Task(key="a", command=["true"])], workers=2, attempts=1)  # doctest: +SKIP
    """
    given = {"name": name, "workers": workers, **settings}
    wanted = {word: _plain(value) for word, value in given.items() if value is not None}
    submission = _from_file(tasks, wanted) if isinstance(tasks, str | os.PathLike) else _from_script(tasks, wanted)
    if folder is not None:
        submission = replace(submission, folder=str(Path(folder).absolute()))
    machine = config.load(home)
    submitting.require_secrets(submission)
    store = open_store(machine.home)
    try:
        run = submitting.submit(store, submission)
    finally:
        store.close()
    return RunHandle(machine, run)


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
            return [_result(task) for task in reader.tasks(run.id)]

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


def _from_script(tasks: Iterable[Any], wanted: dict[str, Any]) -> taskfile.Submission:
    if isinstance(tasks, Mapping | Task):
        raise InputError("submit takes several tasks; put the one into a list")
    return taskfile.from_mappings(map(_mapping, tasks), wanted, folder=os.getcwd(), name="python")


def _from_file(path: Folder, wanted: dict[str, Any]) -> taskfile.Submission:
    submission = taskfile.load(path)
    try:
        name, policy = taskrow.policy(wanted)
    except taskrow.Problem as problem:
        raise TaskFileError(f"submit: {sentence(str(problem))}") from None
    names = [_FIELDS.get(word, word) for word in wanted if word != "name"]
    merged = replace(submission.policy, **{field: getattr(policy, field) for field in names})
    return replace(submission, name=name or submission.name, policy=merged)


def _mapping(task: Any) -> Any:
    """The task as the task file writes it; what is no task is left for the checker to refuse."""
    if isinstance(task, Task):
        return {one.name: _plain(value) for one in fields(task) if (value := getattr(task, one.name)) is not None}
    if isinstance(task, Mapping):
        return {word: _plain(value) for word, value in cast("Mapping[Any, Any]", task).items()}
    return task


def _plain(value: Any) -> Any:
    return value.total_seconds() if isinstance(value, timedelta) else value


def _result(task: StoredTask) -> TaskResult:
    verdict = task.verdict
    return TaskResult(
        key=task.key,
        domain=task.spec.domain,
        state=task.state,
        score=verdict.score if verdict else None,
        success=verdict.success if verdict else None,
        steps=verdict.steps if verdict else None,
        metrics=verdict.metrics if verdict else {},
        duration_s=task.duration_s,
        attempts=task.attempts,
        worker=task.worker,
        failure=None if verdict else task.failure,
        reason=task.reason,
    )
