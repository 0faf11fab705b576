"""Weights and quotas over HTTP."""

from __future__ import annotations

import msgspec
from aiohttp import web

from evalfleet.operations import shares
from evalfleet.web import params
from evalfleet.web.answers import answered, told
from evalfleet.web.context import Handlers


class NamedShare(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    subject: str  # user, project
    name: str


class NewShare(NamedShare, kw_only=True):
    weight: float | None = None
    running: int | None = None
    gpus: int | None = None
    usd_per_day: float | None = None


class ShareHandlers(Handlers):
    """Handlers: one of the role reader, two of the role operator."""

    async def listed(self, request: web.Request) -> web.Response:
        del request
        return await answered(self._site, ("shares",), lambda store: shares.list_shares(self._site.settings, store))

    async def set(self, request: web.Request) -> web.Response:
        """Say what a user or project may have, in place of what was said before."""
        wanted = await params.body(request, NewShare)
        params.finite("weight", wanted.weight)
        params.finite("usd_per_day", wanted.usd_per_day)
        terms = shares.Terms(**{name: getattr(wanted, name) for name in shares.Terms.__struct_fields__})
        return told(await self._site.write(lambda store: shares.set_share(store, wanted.subject, wanted.name, terms)))

    async def remove(self, request: web.Request) -> web.Response:
        wanted = await params.body(request, NamedShare)
        return told(await self._site.write(lambda store: shares.remove_share(store, wanted.subject, wanted.name)))
