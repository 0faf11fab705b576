"""GPUs over HTTP: holders, queue, and taking one out of quarantine."""

from __future__ import annotations

import msgspec
from aiohttp import web

from evalfleet.answers.gpus import UnquarantinedGpu
from evalfleet.report.gpus import gpus_facts
from evalfleet.web import params
from evalfleet.web.answers import answered, told
from evalfleet.web.context import Handlers, bearer_of


class OneGpu(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    host: str
    uuid: str


class Gpus(Handlers):
    """Handlers: one of the role reader, one of the role operator."""

    async def listed(self, request: web.Request) -> web.Response:
        del request
        return await answered(self._site, ("gpus",), gpus_facts)

    async def unquarantine(self, request: web.Request) -> web.Response:
        """Take a GPU out of quarantine. The event records the user."""
        wanted = await params.body(request, OneGpu)
        by = str(bearer_of(request))
        await self._site.write(lambda store: store.gpus.unquarantine(wanted.host, wanted.uuid, by))
        return told(UnquarantinedGpu(host=wanted.host, uuid=wanted.uuid))
