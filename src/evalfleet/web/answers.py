"""Answers of the reading half: JSON that says up to which event it is whole."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from aiohttp import web

from evalfleet.store.base.store import StoreReader
from evalfleet.web.context import Site

_COMPRESSED = 2000  # bytes; below it costs more than it saves
_EVENT = "X-Evalfleet-Event"


async def answered(site: Site, key: Hashable | None, ask: Callable[[StoreReader], Any]) -> web.Response:
    """The answer as JSON, shared with all who ask for `key` at about the same time. One without a key is computed anew."""
    found = await (site.readers.fresh(ask) if key is None else site.readers.answer(key, ask))
    response = web.Response(
        body=found.body,
        content_type="application/json",
        headers={_EVENT: str(found.event), "Cache-Control": "no-store"},
    )
    if len(found.body) > _COMPRESSED:
        response.enable_compression()
    return response
