"""Plans over HTTP: those that there are, and new ones."""

from __future__ import annotations

import msgspec
from aiohttp import web

from evalfleet import taskfile
from evalfleet.answers.plans import Plans
from evalfleet.errors import InputError
from evalfleet.operations.plans import jobs, make
from evalfleet.web import params
from evalfleet.web.answers import answered, told
from evalfleet.web.context import Handlers

_MOST_TASKS = 10_000


class NewPlan(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A plan to be made: of a benchmark, of the text of a task file, or of a number of unknown tasks."""

    benchmark: str | None = None
    agent: str | None = None
    model: str | None = None
    domain: str | None = None
    task: list[str] | None = None
    tasks: int | None = None
    repeat: int | None = None
    options: dict[str, str] | None = None  # the benchmark's own
    toml: str | None = None  # a whole task file, in place of a benchmark
    deadline_s: float | None = None
    budget_usd: float | None = None
    workers: int | None = None
    size: list[str] = []
    regions: list[str] = []
    spot: bool | None = None
    memory_gb: dict[str, float] = {}  # what each task of a domain needs, by domain
    minutes_per_task: float | None = None
    start_minutes: float | None = None
    image: bool = False
    price: float | None = None


_OF_BENCHMARK = ("agent", "model", "domain", "task", "tasks", "repeat", "options")
_AS_THEY_ARE = ("deadline_s", "budget_usd", "workers", "spot", "minutes_per_task", "start_minutes", "image", "price")


class PlanHandlers(Handlers):
    """Handlers: two of the role reader, one of the role operator."""

    async def listed(self, request: web.Request) -> web.Response:
        del request
        return await answered(self._site, ("plans",), lambda store: Plans(plans=make.newest(store)))

    async def one(self, request: web.Request) -> web.Response:
        plan_id = request.match_info["plan"]
        return await answered(self._site, ("plans", plan_id), lambda store: make.show(store, plan_id))

    async def new(self, request: web.Request) -> web.Response:
        """Make a plan and store it. Nothing is bought."""
        wanted = await params.body(request, NewPlan)
        params.workers(wanted.tasks, "tasks", _MOST_TASKS)
        asked = make.PlanRequest(
            **{name: getattr(wanted, name) for name in _AS_THEY_ARE},
            size=tuple(wanted.size),
            regions=tuple(wanted.regions),
            memory=make.in_mb(wanted.memory_gb),
        )
        made = await self._site.write(lambda store: make.make(self._site.settings, store, self._planned(wanted), asked))
        return told(made, 201)

    def _planned(self, wanted: NewPlan) -> jobs.Planned:
        given = {name: value for name in _OF_BENCHMARK if (value := getattr(wanted, name)) is not None}
        if wanted.toml is not None:
            if wanted.benchmark is not None or given:
                raise InputError("give one of `benchmark` and `toml`, and options with a benchmark only")
            found = taskfile.from_toml(wanted.toml, folder=params.folder(None), name="web", shown="toml")
            return jobs.jobs_of_submission(f"{found.name}.toml", found)
        if wanted.benchmark is not None:
            return jobs.jobs_of_benchmark(wanted.benchmark, given, self._site.settings)
        if wanted.tasks is None or len(given) > 1:
            raise InputError("name a benchmark, or say how many tasks there are and nothing else of them")
        return jobs.unnamed(wanted.tasks)
