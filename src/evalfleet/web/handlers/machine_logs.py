"""Logs of a pool's machines over HTTP."""

from __future__ import annotations

from aiohttp import web

from evalfleet.operations.machines import machine_logs
from evalfleet.operations.machines.machine_logs import Target
from evalfleet.web import params
from evalfleet.web.answers import told
from evalfleet.web.context import Handlers

MOST_LINES = 10_000


class MachineLogs(Handlers):
    """Handlers of the role reader."""

    async def names(self, request: web.Request) -> web.Response:
        return told(await machine_logs.names(await self._target(request)))

    async def read(self, request: web.Request) -> web.Response:
        lines = params.whole(request, "lines", None, 1, MOST_LINES)
        kept = params.word(request, "kept", ("0", "1")) == "1"
        target = await self._target(request)
        return told(await machine_logs.read(target, request.match_info["log"], lines=lines, from_kept=kept))

    async def _target(self, request: web.Request) -> Target:
        pool, host, settings = request.match_info["pool"], request.match_info["host"], self._site.settings
        found = await self._site.readers.call(
            lambda store: machine_logs.targets(settings, store, store.pools.get(pool), host)
        )
        return found[0]
