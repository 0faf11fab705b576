"""Housekeeping over HTTP: pins, and removing files of finished runs."""

from __future__ import annotations

import msgspec
from aiohttp import web

from evalfleet.core.retention import Part
from evalfleet.operations.housekeeping import pins
from evalfleet.operations.housekeeping.prune import Pruned, prune
from evalfleet.web import params
from evalfleet.web.answers import told
from evalfleet.web.context import Handlers, bearer_of
from evalfleet.web.handlers.run_changes import PauseReason


class Prune(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What goes: that part of the named runs; without names, what these rules say and [retention] besides."""

    runs: list[str] = []
    what: Part = Part.ARTIFACTS
    artifacts_s: float | None = None
    logs_s: float | None = None
    runs_s: float | None = None
    size_gb: float | None = None
    count: int | None = None
    dry_run: bool = False


class Housekeeping(Handlers):
    """Handlers of the role operator."""

    async def pin(self, request: web.Request) -> web.Response:
        wanted = await params.body(request, PauseReason)
        text, by = request.match_info["run"], str(bearer_of(request))
        return told(
            await self._site.write(lambda store: pins.pin(store, store.runs.find(text), reason=wanted.reason, by=by))
        )

    async def unpin(self, request: web.Request) -> web.Response:
        await params.body(request, params.Nothing)
        text, by = request.match_info["run"], str(bearer_of(request))
        return told(await self._site.write(lambda store: pins.unpin(store, store.runs.find(text), by=by)))

    async def prune(self, request: web.Request) -> web.Response:
        wanted = await params.body(request, Prune)
        for name in ("artifacts_s", "logs_s", "runs_s", "size_gb", "count"):
            params.finite(name, getattr(wanted, name))
        given = {name: getattr(wanted, name) for name in ("artifacts_s", "logs_s", "runs_s", "count")}
        given["size"] = None if wanted.size_gb is None else int(wanted.size_gb * 1e9)
        rules = self._site.settings.retention.rules.overridden(**given)
        params.some(
            wanted.runs or rules.is_set, "a rule such as `artifacts_s`, or `runs`: [retention] has no rule, and one"
        )
        home = self._site.settings.home

        def work(_: object) -> Pruned:
            return prune(home, rules, runs=wanted.runs, what=wanted.what, dry_run=wanted.dry_run)

        return told(await self._site.write(work, waits=True))
