"""Studies over HTTP: what they found, new ones, and what only studies can be asked. The rest is that of their runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from aiohttp import web

from evalfleet.answers.studies import StudyList, SubmittedStudy
from evalfleet.errors import InputError
from evalfleet.model import Run, RunState
from evalfleet.operations.runs import steer, studies
from evalfleet.operations.runs.studies import StudyOptions
from evalfleet.report.studies.study import find_study, study_facts, study_rows
from evalfleet.store.store import Store
from evalfleet.tune.study import Study
from evalfleet.web import params
from evalfleet.web.answers import answered, told
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
    project: str | None = None
    tags: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    folder: str | None = None


class AddTrials(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    trials: int


class Parallel(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    parallel: int


class StudyAmended(steer.Amended, frozen=True, kw_only=True):
    parallel: int  # trials at a time


class Studies:
    """Handlers: two of the role reader, the rest of the role operator."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._steering = Steering(site)

    async def listed(self, request: web.Request) -> web.Response:
        del request
        return await answered(self._site, ("studies",), lambda store: StudyList(studies=study_rows(store)))

    async def one(self, request: web.Request) -> web.Response:
        text = request.match_info["run"]
        return await answered(self._site, ("study", text), lambda store: study_facts(store, find_study(store, text)))

    async def submit(self, request: web.Request) -> web.Response:
        wanted = await params.body(request, NewStudy)
        params.finite("budget_usd", wanted.budget_usd)
        params.workers(wanted.parallel, "parallel", _MOST_PARALLEL)
        params.workers(wanted.trials, "trials", _MOST_TRIALS)
        params.title(wanted.name)
        gpus = studies.gpu_indices(wanted.gpus or None)
        options = StudyOptions(
            name=wanted.name,
            pool=wanted.pool,
            budget_usd=wanted.budget_usd,
            gpus=gpus,
            project=wanted.project,
            tags=wanted.tags,
        )
        bearer = bearer_of(request)

        def make(store: Store) -> Run:
            folder = params.folder(wanted.folder)
            study = _study(wanted)
            studies.require_files(study, Path(folder), "study")
            return studies.submit(
                self._site.settings, store, study, options, folder=folder, by=str(bearer), owner=bearer.user
            )

        run = await self._site.write(make)
        if self._site.run_supervisor is not None:
            await self._site.run_supervisor.request(run.id)
        return told(SubmittedStudy(run=run.id, name=run.name, state=run.state, folder=run.folder), 201)

    async def add_trials(self, request: web.Request) -> web.Response:
        wanted = await params.body(request, AddTrials)
        params.workers(wanted.trials, "trials", _MOST_TRIALS)
        run = await self._study(request)
        answer = await self._steering.change(
            request, run, lambda store, run, by: studies.add_trials(store, run, wanted.trials, by=by)
        )
        if run.state is not RunState.PAUSED:
            await self._steering.go_on(run)
        return await self._steering.answer(answer)

    async def retry_failed(self, request: web.Request) -> web.Response:
        await params.body(request, params.Nothing)
        run = await self._study(request)
        answer = await self._steering.change(
            request, run, lambda store, run, by: studies.retry_failed(store, run, by=by)
        )
        if answer.tasks:
            await self._steering.go_on(run)
        return await self._steering.answer(answer)

    async def parallel(self, request: web.Request) -> web.Response:
        wanted = await params.body(request, Parallel)
        params.workers(wanted.parallel, "parallel", _MOST_PARALLEL)
        run = await self._study(request)
        answer = await self._steering.change(
            request, run, lambda store, run, by: steer.amend(store, run, workers=wanted.parallel, by=by)
        )
        given = msgspec.structs.asdict(answer)
        return await self._steering.answer(StudyAmended(**given, parallel=answer.workers))

    async def _study(self, request: web.Request) -> Run:
        text = request.match_info["run"]
        return await self._site.readers.call(lambda store: find_study(store, text))


def _study(wanted: NewStudy) -> Study:
    if (wanted.toml is None) == (wanted.study is None):
        raise InputError("give either `toml`, the text of a study file, or `study`, the table that it stands for")
    if wanted.toml is not None:
        return studies.study_in_toml(wanted.toml, "toml", parallel=wanted.parallel, trials=wanted.trials)
    return studies.study_in_table(wanted.study or {}, "study", parallel=wanted.parallel, trials=wanted.trials)
