"""Answers as JSON: to changes, and to questions, which say up to which event they are whole."""

from __future__ import annotations

from collections.abc import Callable, Hashable

import msgspec
from aiohttp import web
from msgspec import Struct

from evalfleet.store.reader import StoreReader
from evalfleet.web.context import Site

_COMPRESSED = 2000  # bytes; below it costs more than it saves
_encoder = msgspec.json.Encoder()
_EVENT = "X-Evalfleet-Event"


def told(answer: Struct, status: int = 200) -> web.Response:
    """The answer to a change."""
    return web.Response(body=_encoder.encode(answer), content_type="application/json", status=status)


async def answered(site: Site, key: Hashable | None, ask: Callable[[StoreReader], Struct]) -> web.Response:
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
