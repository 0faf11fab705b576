"""The acting half of the API: what an operator may do. Every change is an event with the name of the token that asked for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import anyio.to_thread
import msgspec
from aiohttp import web

from evalfleet import taskfile
from evalfleet.benchmarks import registry as benchmarks
from evalfleet.benchmarks.base import Selection
from evalfleet.benchmarks.submission import submission as benchmark_submission
from evalfleet.core.secret_names import warning
from evalfleet.daemon.alerts.channels import Courier, trial
from evalfleet.errors import InputError, Refused
from evalfleet.model import Run, RunState, Verb
from evalfleet.operations.submit import require_secrets, submit
from evalfleet.store.base.store import Store
from evalfleet.web import params
from evalfleet.web.context import Site, bearer_of
from evalfleet.web.handlers.steering import Steering

_OVER = (RunState.COMPLETED, RunState.CANCELLED)


class NewRun(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A run to be made: of tasks, of the text of a task file, or of a benchmark."""

    tasks: list[dict[str, Any]] | None = None
    run: dict[str, Any] = {}
    toml: str | None = None  # a whole task file, instead of both
    benchmark: str | None = None
    agent: str | None = None
    count: int | None = None
    task: list[str] = []
    domain: str | None = None
    seed: int = 0
    repeat: int = 1
    max_steps: int | None = None
    model: str | None = None
    base_url: str | None = None
    name: str | None = None
    workers: int | None = None
    budget_usd: float | None = None
    pool: str | None = None
    folder: str | None = None


class Reason(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    reason: str | None = None


class Amendment(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    workers: int | None = None
    budget_usd: float | None = None


class Keys(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    keys: list[str]
    reason: str | None = None


class Only(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    only: list[str] = []


class WorkerName(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    worker: str
    reason: str | None = None


class Acting:
    """Handlers of the role operator."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._steering = Steering(site)

    async def submit(self, request: web.Request) -> web.Response:
        wanted = await params.body(request, NewRun)
        params.finite("budget_usd", wanted.budget_usd)
        params.workers(wanted.workers)
        params.title(wanted.name)
        by = str(bearer_of(request))

        def make(store: Store) -> tuple[Run, taskfile.Submission]:
            found = self._submission(wanted)
            require_secrets(found)
            with store.batch():
                run = submit(
                    store,
                    found,
                    name=wanted.name,
                    workers=wanted.workers,
                    budget_usd=wanted.budget_usd,
                    pool=wanted.pool,
                    local_usd_per_hour=self._site.settings.local_price_usd_per_hour,
                )
                store.note(run.id, "run.requested", {"verb": "submit", "by": by})
            return run, found

        run, found = await self._site.write(make)
        if self._site.run_supervisor is not None:
            await self._site.run_supervisor.request(run.id)
        answer = {"run": run.id, "name": run.name, "state": str(run.state), "tasks": len(found.tasks)}
        exposed = warning(found.tasks)
        if exposed is not None:
            answer["warning"] = exposed
        return web.json_response(answer, status=201)

    async def pause(self, request: web.Request) -> web.Response:
        wanted = await params.body(request, Reason)
        return await self._steered(request, Verb.PAUSE, {"reason": wanted.reason})

    async def resume(self, request: web.Request) -> web.Response:
        """Go on with a run: by its controller, where it has one, else by this server."""
        args = _amendment(await params.body(request, Amendment))
        run = await self._steering.run(request)
        if run.state in _OVER:
            raise Refused(f"run {run.id} is {run.state}; retry its tasks instead")
        driver = await self._site.readers.call(lambda store: store.driver(run.id))
        if driver is None and self._site.run_supervisor is None:
            raise Refused(f"this server drives no runs; `evalfleet resume {run.id}`, or start `evalfleet serve`")
        answer = await self._steering.steer(request, run, Verb.RESUME, args)
        driver = await self._steering.go_on(run)  # a controller that was about to leave is gone now
        return await self._steering.now(run, {**answer, "by": driver or "this server"})

    async def cancel(self, request: web.Request) -> web.Response:
        await params.body(request, params.Nothing)
        run = await self._steering.run(request)
        left = False

        def finish(store: Store, owned: Run) -> None:
            nonlocal left
            left = bool(store.unended(owned.id))
            if not left:
                store.cancel(owned)

        answer = await self._steering.steer(request, run, Verb.CANCEL, {}, finish)
        if left:
            await self._steering.drive(run, "cancel")
        return await self._steering.now(run, answer)

    async def retry(self, request: web.Request) -> web.Response:
        wanted = await params.body(request, Only)
        run = await self._steering.run(request)
        answer = await self._steering.steer(request, run, Verb.RETRY, {"only": wanted.only})
        if answer.get("tasks"):
            await self._steering.go_on(run)
        return await self._steering.now(run, answer)

    async def hold(self, request: web.Request) -> web.Response:
        wanted = await params.body(request, Keys)
        params.some(wanted.keys, "keys: the key of a task")
        return await self._steered(request, Verb.HOLD, {"keys": wanted.keys, "reason": wanted.reason})

    async def release(self, request: web.Request) -> web.Response:
        wanted = await params.body(request, Keys)
        params.some(wanted.keys, "keys: the key of a task")
        run = await self._steering.run(request)
        answer = await self._steering.steer(request, run, Verb.RELEASE, {"keys": wanted.keys})
        if answer.get("tasks") and run.state is not RunState.PAUSED:
            await self._steering.go_on(run)
        return await self._steering.now(run, answer)

    async def amend(self, request: web.Request) -> web.Response:
        args = _amendment(await params.body(request, Amendment))
        params.some(args, "one of `workers` and `budget_usd`")
        return await self._steered(request, Verb.AMEND, args)

    async def quarantine(self, request: web.Request) -> web.Response:
        wanted = await params.body(request, WorkerName)
        return await self._steered(
            request, Verb.QUARANTINE, {"worker": wanted.worker, "reason": wanted.reason or str(bearer_of(request))}
        )

    async def pardon(self, request: web.Request) -> web.Response:
        wanted = await params.body(request, WorkerName)
        return await self._steered(request, Verb.PARDON, {"worker": wanted.worker, "reason": wanted.reason})

    async def test_alerts(self, request: web.Request) -> web.Response:
        await params.body(request, params.Nothing)
        courier = Courier(self._site.settings.alerts)
        errors = {name: await anyio.to_thread.run_sync(courier.send, name, trial()) for name in courier.channels}
        told = [{"channel": name, "ok": error is None, "error": error} for name, error in errors.items()]
        return web.json_response({"channels": told})

    # Inside

    def _submission(self, wanted: NewRun) -> taskfile.Submission:
        folder = params.folder(wanted.folder)
        if sum(part is not None for part in (wanted.tasks, wanted.toml, wanted.benchmark)) != 1:
            raise InputError("give one of `tasks`, `toml` and `benchmark`")
        if wanted.toml is not None:
            return taskfile.from_toml(wanted.toml, folder=folder, name="web", shown="toml")
        if wanted.tasks is not None:
            return taskfile.from_mappings(wanted.tasks, wanted.run, folder=folder, name="web", shown="body")
        if wanted.agent is None:
            raise InputError("agent: is missing; `evalfleet agents` lists them")
        selection = Selection(
            agent=wanted.agent,
            count=wanted.count,
            keys=tuple(wanted.task),
            domain=wanted.domain,
            seed=wanted.seed,
            repeat=wanted.repeat,
            max_steps=wanted.max_steps,
            model=wanted.model,
            base_url=wanted.base_url,
            remote=wanted.pool is not None,
        )
        settings = self._site.settings
        found = benchmarks.find(wanted.benchmark or "", settings)
        return benchmark_submission(found, selection, settings, folder=folder, say=lambda _: None)

    async def _steered(self, request: web.Request, verb: Verb, args: Mapping[str, Any]) -> web.Response:
        run = await self._steering.run(request)
        return await self._steering.now(run, await self._steering.steer(request, run, verb, args))


def _amendment(wanted: Amendment) -> dict[str, Any]:
    params.finite("budget_usd", wanted.budget_usd)
    params.workers(wanted.workers)
    given = {"workers": wanted.workers, "budget_usd": wanted.budget_usd}
    return {name: value for name, value in given.items() if value is not None}
