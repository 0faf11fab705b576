"""Files that tasks left, given to a browser in a way that they can do nothing in it.

Only pictures (known by their first bytes) and plain text are shown; everything else, pages and drawings with scripts too, is a download.
A sandbox without our origin surrounds every file.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from urllib.parse import quote

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.web_request import BaseRequest

from evalfleet.core.retention import Part
from evalfleet.errors import FilesUnreachable, MissingSecret, NotFound, Refused
from evalfleet.files.base import OpenFile
from evalfleet.files.folder import FolderFiles
from evalfleet.report.removed import removal_of
from evalfleet.web.context import Handlers, place_of
from evalfleet.web.handlers import attempts
from evalfleet.web.handlers.attempts import Place

SANDBOX = "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src 'self'; frame-ancestors 'none'"
_PICTURES = ((b"\x89PNG\r\n\x1a\n", "image/png"), (b"\xff\xd8\xff", "image/jpeg"), (b"GIF8", "image/gif"))
_TEXTS = (".txt", ".log", ".json", ".jsonl", ".csv", ".md", ".toml", ".yaml", ".yml", ".py", ".patch", ".diff")
_HEAD = 16
_MOST_CLEANED = 64 << 20
_PIECE = 1 << 20


class Files(Handlers):
    """Handlers of the role reader."""

    async def artifact(self, request: web.Request) -> web.StreamResponse:
        found = await place_of(self._site, request)
        name = request.match_info["path"]
        copy = await self._site.remote.file(found, name)
        file = await self._site.readers.call(lambda _: _opened(copy, found, name))
        if file is None:
            removed = await self._site.readers.call(lambda store: removal_of(store, found.attempt, Part.ARTIFACTS))
            raise NotFound(
                f"artifacts of attempt {found.attempt.id} {removed}"
                if removed
                else f"attempt {found.attempt.id} has no file {name!r}"
            )
        if found.is_raw and not file.kind.startswith("image/"):
            return await self._site.readers.call(lambda _: file.cleaned(found, download="download" in request.query))
        return file.given(download="download" in request.query, private=found.is_live)

    async def screenshot(self, request: web.Request) -> web.StreamResponse:
        found = await place_of(self._site, request)
        copy = await self._site.remote.picture(found)
        file = await self._site.readers.call(
            lambda _: _opened(copy, found, "" if copy else attempts.newest_picture(found) or "")
        )
        if file is None or not file.kind.startswith("image/"):
            raise NotFound(f"attempt {found.attempt.id} has no screenshot yet")
        return file.given(download=False, private=True)


class _Opened:
    """A file that was looked at, and is sent as it is, whatever has its name by now."""

    def __init__(self, file: OpenFile, name: str) -> None:
        self.file = file  # closed once it was sent, or nobody wants it any more
        self.name = name.rpartition("/")[2]
        self.kind = _kind(file.read(0, _HEAD), self.name)

    def given(self, *, download: bool, private: bool) -> web.StreamResponse:
        headers = self._headers(download=download, private=private)
        return _Streamed(self.file, headers) if self.file.descriptor is None else _Sent(self.file, headers)

    def cleaned(self, found: Place, *, download: bool) -> web.Response:
        """What a task with secrets is just writing. Raises Refused: it is too large, or this server does not know the secrets."""
        with self.file:
            data = self.file.read(0, _MOST_CLEANED + 1)
        if len(data) > _MOST_CLEANED:
            raise Refused(
                f"{self.name} has more than {_MOST_CLEANED >> 20} MB and may hold a secret until its attempt ended; wait for that"
            )
        try:
            body = attempts.cleaned(found, data)
        except MissingSecret as error:
            raise Refused(f"{self.name} may hold a secret until its attempt ended: {error}") from None
        return web.Response(body=body, headers=self._headers(download=download, private=True))

    def _headers(self, *, download: bool, private: bool) -> dict[str, Any]:
        headers: dict[str, Any] = {
            "Content-Type": "text/plain; charset=utf-8" if self.kind == "text/plain" else self.kind,
            "Content-Security-Policy": SANDBOX,
            "Cache-Control": "no-cache" if private else "private, max-age=3600",
        }
        if download or self.kind == "application/octet-stream":
            headers["Content-Disposition"] = f"attachment; filename*=UTF-8''{quote(self.name, safe='')}"
        return headers


class _Sent(web.FileResponse):
    """Sends an open file: its name in /proc leads to that very file."""

    def __init__(self, file: OpenFile, headers: dict[str, Any]) -> None:
        super().__init__(f"/proc/self/fd/{file.descriptor}", headers=headers)
        self._opened = file

    async def prepare(self, request: BaseRequest) -> AbstractStreamWriter | None:
        with self._opened:
            return await super().prepare(request)


class _Streamed(web.StreamResponse):
    """Sends a file that is not on this machine, or the range of it that was asked for, piece by piece."""

    def __init__(self, file: OpenFile, headers: dict[str, Any]) -> None:
        super().__init__(headers=headers)
        self._opened = file

    async def prepare(self, request: BaseRequest) -> AbstractStreamWriter | None:
        size = self._opened.size
        self.headers["Accept-Ranges"] = "bytes"
        begin, end = 0, size
        try:
            wanted = request.http_range
            if wanted.start is not None or wanted.stop is not None:
                begin, end, _ = wanted.indices(size)
                if begin >= end:
                    raise ValueError("nothing of the file is in that range")
                self.set_status(206)
                self.headers["Content-Range"] = f"bytes {begin}-{end - 1}/{size}"
        except ValueError:
            begin = end = 0
            self.set_status(416)
            self.headers["Content-Range"] = f"bytes */{size}"
        self.content_length = end - begin
        writer = await super().prepare(request)
        if request.method != "HEAD":
            await self._send(request, begin, end)
        await self.write_eof()
        return writer

    async def _send(self, request: BaseRequest, begin: int, end: int) -> None:
        with self._opened:
            while begin < end:
                try:
                    piece = await asyncio.to_thread(self._opened.read, begin, min(_PIECE, end - begin))
                except FilesUnreachable:
                    piece = b""
                if not piece:
                    if request.transport is not None:
                        request.transport.abort()  # a reader must not take half a file for all of it
                    raise ConnectionResetError("the file's place does not answer any more")
                await self.write(piece)
                begin += len(piece)


def _opened(copy: Path | None, found: Place, name: str) -> _Opened | None:
    """
    Args:
        copy: of a file on another machine, made by this server.
    """
    file = attempts.opened(found, name) if copy is None else FolderFiles(copy.parent).open(copy.name)
    return None if file is None else _Opened(file, name if copy is None else copy.name)


def _kind(head: bytes, name: str) -> str:
    """What a browser may take it for."""
    for mark, kind in _PICTURES:
        if head.startswith(mark):
            return kind
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "image/webp"
    return "text/plain" if name.lower().endswith(_TEXTS) else "application/octet-stream"
