"""Plans over HTTP: those that there are, and new ones."""

from __future__ import annotations

import msgspec
from aiohttp import web

from evalfleet.answers.plans import Plans
from evalfleet.errors import InputError
from evalfleet.operations.plans import jobs, make
from evalfleet.web import params
from evalfleet.web.answers import answered, told
from evalfleet.web.context import Site

_MOST_TASKS = 10_000
_MOST_WORKERS = 10_000


class NewPlan(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A plan to be made: of a benchmark, or of a number of unknown tasks."""

    benchmark: str | None = None
    agent: str | None = None
    model: str | None = None
    domain: str | None = None
    tasks: int | None = None
    deadline_s: float | None = None
    budget_usd: float | None = None
    workers: int | None = None
    size: list[str] = []
    regions: list[str] = []
    spot: bool | None = None
    minutes_per_task: float | None = None


class PlanHandlers:
    """Handlers: two of the role reader, one of the role operator."""

    def __init__(self, site: Site) -> None:
        self._site = site

    async def listed(self, request: web.Request) -> web.Response:
        del request
        return await answered(self._site, ("plans",), lambda store: Plans(plans=make.newest(store)))

    async def one(self, request: web.Request) -> web.Response:
        plan_id = request.match_info["plan"]
        return await answered(self._site, ("plans", plan_id), lambda store: make.show(store, plan_id))

    async def new(self, request: web.Request) -> web.Response:
        """Make a plan and store it. Nothing is bought."""
        wanted = await params.body(request, NewPlan)
        params.finite("budget_usd", wanted.budget_usd)
        params.finite("deadline_s", wanted.deadline_s)
        params.finite("minutes_per_task", wanted.minutes_per_task)
        params.workers(wanted.workers, "workers", _MOST_WORKERS)
        params.workers(wanted.tasks, "tasks", _MOST_TASKS)
        asked = make.PlanRequest(
            deadline_s=wanted.deadline_s,
            budget_usd=wanted.budget_usd,
            workers=wanted.workers,
            size=tuple(wanted.size),
            regions=tuple(wanted.regions),
            spot=wanted.spot,
            minutes_per_task=wanted.minutes_per_task,
        )
        made = await self._site.write(lambda store: make.make(self._site.settings, store, self._planned(wanted), asked))
        return told(made, 201)

    def _planned(self, wanted: NewPlan) -> jobs.Planned:
        if wanted.benchmark is None:
            if wanted.tasks is None:
                raise InputError("name a benchmark, or say how many tasks there are")
            return jobs.unnamed(wanted.tasks)
        chosen = {name: getattr(wanted, name) for name in ("agent", "model", "domain", "tasks")}
        given = {name: value for name, value in chosen.items() if value is not None}
        return jobs.jobs_of_benchmark(wanted.benchmark, given, self._site.settings)
