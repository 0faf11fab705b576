"""Changes of runs that an operator may ask for. Every change is an event with the name of the token that asked for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import anyio.to_thread
import msgspec
from aiohttp import web

from evalfleet import taskfile
from evalfleet.answers.alerts import ChannelTest, ChannelTests
from evalfleet.benchmarks.base import BenchmarkOptions
from evalfleet.daemon.alerts.channels import ChannelSender, trial
from evalfleet.errors import InputError, Refused
from evalfleet.model import Run, RunState
from evalfleet.operations.runs import steer, submit
from evalfleet.operations.runs.submit import RunOptions
from evalfleet.store.store import Store
from evalfleet.taskfile.part import Part, part_of
from evalfleet.validation import checked_priority
from evalfleet.web import params
from evalfleet.web.answers import told
from evalfleet.web.context import Site, bearer_of
from evalfleet.web.handlers.steering import Steering


class NewRun(BenchmarkOptions, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A run to be submitted: of tasks, of the text of a task file, or of a benchmark with its options."""

    # A list, or how many of the benchmark's tasks; it is narrowed before it becomes `BenchmarkOptions`.
    tasks: list[dict[str, Any]] | int | None = None  # pyright: ignore[reportIncompatibleVariableOverride]
    run: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])
    toml: str | None = None  # a whole task file, instead of both
    benchmark: str | None = None
    timeout_s: float | None = None  # of an attempt of the benchmark
    env: dict[str, str] = msgspec.field(default_factory=dict[str, str])  # of every task, besides its own
    secrets: tuple[str, ...] = ()  # names of variables of this server
    name: str | None = None
    workers: int | None = None
    distribution: Literal["queue", "round-robin"] | None = None
    budget_usd: float | None = None
    priority: int | None = None
    pool: str | None = None
    project: str | None = None
    tags: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    folder: str | None = None


class PauseReason(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    reason: str | None = None


class Amendment(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    workers: int | None = None
    budget_usd: float | None = None


class RunAmendment(Amendment, kw_only=True):
    priority: int | None = None


class Keys(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    keys: list[str]
    reason: str | None = None


class Only(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    only: list[str] = []


class WorkerName(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    worker: str
    reason: str | None = None


class Resumed(steer.Amended, frozen=True, kw_only=True):
    by: str  # the controller that drives it now


class Acting:
    """Handlers of the role operator."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._steering = Steering(site)

    async def submit(self, request: web.Request) -> web.Response:
        wanted = await params.body(request, NewRun)
        params.finite("budget_usd", wanted.budget_usd)
        params.workers(wanted.workers)
        checked_priority(wanted.priority)
        params.title(wanted.name)
        bearer = bearer_of(request)
        options = RunOptions(**{name: getattr(wanted, name) for name in RunOptions.__struct_fields__})

        def make(store: Store) -> submit.Submitted:
            return submit.submit(
                self._site.settings, store, self._submission(wanted), options, by=str(bearer), owner=bearer.user
            )[1]

        answer = await self._site.write(make)
        if self._site.run_supervisor is not None:
            await self._site.run_supervisor.request(answer.run)
        return told(answer, 201)

    async def pause(self, request: web.Request) -> web.Response:
        wanted = await params.body(request, PauseReason)
        return await self._changed(request, lambda store, run, by: steer.pause(store, run, reason=wanted.reason, by=by))

    async def resume(self, request: web.Request) -> web.Response:
        """Continue a run: by its controller, where it has one, else by this server."""
        wanted = _checked(await params.body(request, Amendment))
        run = await self._steering.run(request)
        if run.state.is_over:
            raise Refused(f"run {run.id} is {run.state}; retry its tasks instead")
        driver = await self._site.readers.call(lambda store: store.runs.driver(run.id))
        if driver is None and self._site.run_supervisor is None:
            raise Refused(f"this server drives no runs; `evalfleet resume {run.id}`, or start `evalfleet serve`")

        def change(store: Store, run: Run, by: str) -> steer.Amended:
            return steer.resume(store, run, workers=wanted.workers, budget_usd=wanted.budget_usd, by=by)

        answer = await self._steering.change(request, run, change)
        driver = await self._steering.go_on(run)  # a controller that was about to exit is gone now
        given = msgspec.structs.asdict(answer)
        return await self._steering.answer(Resumed(**given, by=driver or "this server"))

    async def cancel(self, request: web.Request) -> web.Response:
        await params.body(request, params.Nothing)
        run = await self._steering.run(request)
        answer = await self._steering.change(
            request, run, lambda store, run, by: steer.request_cancel(store, run, by=by)
        )
        if answer.live:
            await self._steering.drive(run, "cancel")
        return await self._steering.answer(answer)

    async def retry(self, request: web.Request) -> web.Response:
        wanted = await params.body(request, Only)
        run = await self._steering.run(request)
        answer = await self._steering.change(
            request, run, lambda store, run, by: steer.retry(store, run, wanted.only, by=by)
        )
        if answer.tasks:
            await self._steering.go_on(run)
        return await self._steering.answer(answer)

    async def hold(self, request: web.Request) -> web.Response:
        wanted = await params.body(request, Keys)
        params.some(wanted.keys, "keys: the key of a task")
        return await self._changed(
            request, lambda store, run, by: steer.hold(store, run, wanted.keys, reason=wanted.reason, by=by)
        )

    async def release(self, request: web.Request) -> web.Response:
        wanted = await params.body(request, Keys)
        params.some(wanted.keys, "keys: the key of a task")
        run = await self._steering.run(request)
        answer = await self._steering.change(
            request, run, lambda store, run, by: steer.release(store, run, wanted.keys, by=by)
        )
        if answer.tasks and run.state is not RunState.PAUSED:
            await self._steering.go_on(run)
        return await self._steering.answer(answer)

    async def amend(self, request: web.Request) -> web.Response:
        wanted = await params.body(request, RunAmendment)
        _checked(wanted)
        given = msgspec.structs.asdict(wanted)
        what = "one of `workers`, `budget_usd` and `priority`"
        params.some([value for value in given.values() if value is not None], what)
        return await self._changed(request, lambda store, run, by: steer.amend(store, run, **given, by=by))

    async def quarantine(self, request: web.Request) -> web.Response:
        wanted = await params.body(request, WorkerName)
        return await self._changed(
            request, lambda store, run, by: steer.quarantine(store, run, wanted.worker, reason=wanted.reason, by=by)
        )

    async def unquarantine(self, request: web.Request) -> web.Response:
        wanted = await params.body(request, WorkerName)
        return await self._changed(
            request, lambda store, run, by: steer.unquarantine(store, run, wanted.worker, reason=wanted.reason, by=by)
        )

    async def test_alerts(self, request: web.Request) -> web.Response:
        await params.body(request, params.Nothing)
        sender = ChannelSender(self._site.settings.alerts)
        errors = {name: await anyio.to_thread.run_sync(sender.send, name, trial()) for name in sender.channels}
        sent = [ChannelTest(channel=name, ok=error is None, error=error) for name, error in errors.items()]
        return told(ChannelTests(channels=sent))

    # Inside

    def _submission(self, wanted: NewRun) -> taskfile.Submission:
        folder = params.folder(wanted.folder)
        rows = wanted.tasks if isinstance(wanted.tasks, list) else None
        if sum(part is not None for part in (rows, wanted.toml, wanted.benchmark)) != 1:
            raise InputError("give one of `tasks`, `toml` and `benchmark`")
        most = wanted.tasks if isinstance(wanted.tasks, int) else None
        part = Part(**{name: getattr(wanted, name) for name in Part.__struct_fields__ if name != "tasks"}, tasks=most)
        if wanted.toml is not None:
            return part_of(taskfile.from_toml(wanted.toml, folder=folder, name="web", shown="toml"), part)
        if rows is not None:
            return part_of(taskfile.from_mappings(rows, wanted.run, folder=folder, name="web", shown="body"), part)
        options = submit.benchmark_options({name: getattr(wanted, name) for name in BenchmarkOptions.__struct_fields__})
        found = submit.benchmark_submission(
            wanted.benchmark or "",
            options,
            self._site.settings,
            folder=folder,
            remote=wanted.pool is not None,
            timeout_s=wanted.timeout_s,
        )
        return part_of(found, Part(env=wanted.env, secrets=wanted.secrets))

    async def _changed(self, request: web.Request, change: Callable[[Store, Run, str], steer.Changed]) -> web.Response:
        run = await self._steering.run(request)
        return await self._steering.answer(await self._steering.change(request, run, change))


def _checked(wanted: Amendment) -> Amendment:
    params.finite("budget_usd", wanted.budget_usd)
    params.workers(wanted.workers)
    return wanted
