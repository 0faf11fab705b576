"""Studies over HTTP: what they found, new ones, and what only studies can be asked. The rest is that of their runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from aiohttp import web

from evalfleet.engine.trials import submit_study
from evalfleet.errors import InputError
from evalfleet.model import Run, RunState, Verb
from evalfleet.operations.study_file import require_files, study_in_table, study_in_toml
from evalfleet.report.studies.find import find_study
from evalfleet.report.studies.study import studies_facts, study_facts
from evalfleet.store.base.store import Store
from evalfleet.taskfile.row import Problem, gpu_places
from evalfleet.tune.study import Study
from evalfleet.web import params
from evalfleet.web.answers import answered
from evalfleet.web.context import Site, bearer_of
from evalfleet.web.handlers.steering import Steering

_MOST_TRIALS = 100_000
_MOST_PARALLEL = 10_000


class NewStudy(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A study to be made: as the text of a study file, or as the table that it stands for."""

    toml: str | None = None
    study: dict[str, Any] | None = None
    parallel: int | None = None
    trials: int | None = None
    pool: str | None = None
    gpus: str | list[int] | None = None  # only those with these indices: "0,1"
    name: str | None = None
    budget_usd: float | None = None
    folder: str | None = None


class MoreTrials(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    trials: int


class Parallel(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    parallel: int


class Studies:
    """Handlers: two of the role reader, the rest of the role operator."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._steering = Steering(site)

    async def listed(self, request: web.Request) -> web.Response:
        del request
        return await answered(self._site, ("studies",), lambda store: {"studies": studies_facts(store)})

    async def one(self, request: web.Request) -> web.Response:
        text = request.match_info["run"]
        return await answered(self._site, ("study", text), lambda store: study_facts(store, find_study(store, text)))

    async def submit(self, request: web.Request) -> web.Response:
        wanted = await params.body(request, NewStudy)
        params.finite("budget_usd", wanted.budget_usd)
        params.workers(wanted.parallel, "parallel", _MOST_PARALLEL)
        params.workers(wanted.trials, "trials", _MOST_TRIALS)
        params.title(wanted.name)
        gpus = _places(wanted.gpus)
        by = str(bearer_of(request))

        def make(store: Store) -> Run:
            folder = params.folder(wanted.folder)
            study = _study(wanted)
            require_files(study, Path(folder), "study")
            if wanted.pool is not None:
                store.pool(wanted.pool)
            with store.batch():
                run = submit_study(
                    store,
                    study,
                    folder=folder,
                    name=wanted.name,
                    pool=wanted.pool,
                    budget_usd=wanted.budget_usd,
                    gpus=gpus,
                    local_usd_per_hour=self._site.settings.local_price_usd_per_hour,
                )
                store.note(run.id, "run.requested", {"verb": "submit", "by": by})
            return run

        run = await self._site.write(make)
        if self._site.run_supervisor is not None:
            await self._site.run_supervisor.request(run.id)
        answer = {"run": run.id, "name": run.name, "state": str(run.state), "folder": run.folder}
        return web.json_response(answer, status=201)

    async def add_trials(self, request: web.Request) -> web.Response:
        wanted = await params.body(request, MoreTrials)
        params.workers(wanted.trials, "trials", _MOST_TRIALS)
        run = await self._study(request)
        answer = await self._steering.steer(request, run, Verb.AMEND, {"add_trials": wanted.trials})
        if run.state is not RunState.PAUSED:
            await self._steering.go_on(run)
        return await self._steering.now(run, {"trials": answer["trials"]})

    async def retry_failed(self, request: web.Request) -> web.Response:
        await params.body(request, params.Nothing)
        run = await self._study(request)
        answer = await self._steering.steer(request, run, Verb.RETRY, {"only": ["failed"]})
        if answer.get("tasks"):
            await self._steering.go_on(run)
        return await self._steering.now(run, answer)

    async def parallel(self, request: web.Request) -> web.Response:
        wanted = await params.body(request, Parallel)
        params.workers(wanted.parallel, "parallel", _MOST_PARALLEL)
        run = await self._study(request)
        answer = await self._steering.steer(request, run, Verb.AMEND, {"workers": wanted.parallel})
        return await self._steering.now(run, {"parallel": answer["workers"]})

    async def _study(self, request: web.Request) -> Run:
        text = request.match_info["run"]
        return await self._site.readers.call(lambda store: find_study(store, text))


def _study(wanted: NewStudy) -> Study:
    if (wanted.toml is None) == (wanted.study is None):
        raise InputError("give either `toml`, the text of a study file, or `study`, the table that it stands for")
    if wanted.toml is not None:
        return study_in_toml(wanted.toml, "toml", parallel=wanted.parallel, trials=wanted.trials)
    return study_in_table(wanted.study or {}, "study", parallel=wanted.parallel, trials=wanted.trials)


def _places(gpus: str | list[int] | None) -> tuple[int, ...]:
    """Indices of GPUs; none: all of them."""
    if isinstance(gpus, str):
        words = gpus.replace(",", " ").split()
        wrong = next((word for word in words if not (word.isascii() and word.isdigit() and len(word) < 6)), None)
        if wrong is not None:
            raise InputError(f'gpus: {wrong[:40]!r} is no index; write them like "0,1"')
        gpus = [int(word) for word in words]
    try:
        return gpu_places("gpus", gpus) if gpus else ()
    except Problem as problem:
        raise InputError(str(problem)) from None
