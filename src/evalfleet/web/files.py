"""Files that tasks left, given to a browser in a way that they can do nothing in it.

Only pictures (known by their first bytes) and plain text are shown; everything else, pages and drawings with scripts too, is a download.
Whatever it is, a sandbox without an origin of ours surrounds it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import quote

from aiohttp import web

from evalfleet.errors import NotFound
from evalfleet.web import attempts, params
from evalfleet.web.attempts import Place
from evalfleet.web.site import Site

SANDBOX = "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src 'self'; frame-ancestors 'none'"
_PICTURES = ((b"\x89PNG\r\n\x1a\n", "image/png"), (b"\xff\xd8\xff", "image/jpeg"), (b"GIF8", "image/gif"))
_TEXTS = (".txt", ".log", ".json", ".jsonl", ".csv", ".md", ".toml", ".yaml", ".yml", ".py", ".patch", ".diff")
_HEAD = 16


class Files:
    """Handlers of the role reader."""

    def __init__(self, site: Site) -> None:
        self._site = site

    async def artifact(self, request: web.Request) -> web.StreamResponse:
        found = await self._place(request)
        name = request.match_info["path"]
        copy = await self._site.remote.file(found, name)
        path, kind = await self._site.readers.call(lambda _: _known(copy or attempts.inside(found.artifacts, name)))
        if path is None:
            raise NotFound(f"attempt {found.attempt.id} has no file {name!r}")
        return _given(path, kind, download="download" in request.query, private=found.is_live)

    async def screenshot(self, request: web.Request) -> web.StreamResponse:
        found = await self._place(request)
        copy = await self._site.remote.picture(found)
        path, kind = await self._site.readers.call(lambda _: _known(copy or attempts.newest_picture(found)))
        if path is None or not kind.startswith("image/"):
            raise NotFound(f"attempt {found.attempt.id} has no screenshot yet")
        return _given(path, kind, download=False, private=True)

    async def _place(self, request: web.Request) -> Place:
        text = request.match_info["run"]
        task, number = params.number(request, "task"), params.number(request, "attempt")
        home = self._site.home
        return await self._site.readers.call(lambda store: attempts.place(store, home, text, task, number))


def _known(path: Path | None) -> tuple[Path | None, str]:
    """The file, and what a browser may take it for."""
    if path is None:
        return None, ""
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD)
    except OSError:
        return None, ""
    for mark, kind in _PICTURES:
        if head.startswith(mark):
            return path, kind
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return path, "image/webp"
    return path, "text/plain" if path.suffix.lower() in _TEXTS else "application/octet-stream"


def _given(path: Path, kind: str, *, download: bool, private: bool) -> web.StreamResponse:
    headers: dict[str, Any] = {
        "Content-Type": "text/plain; charset=utf-8" if kind == "text/plain" else kind,
        "Content-Security-Policy": SANDBOX,
        "Cache-Control": "no-cache" if private else "private, max-age=3600",
    }
    if download or kind == "application/octet-stream":
        headers["Content-Disposition"] = f"attachment; filename*=UTF-8''{quote(path.name, safe='')}"
    return web.FileResponse(path, headers=headers)
