"""The server inside a test: a real one on loopback, in the test's own loop, and a client that speaks real HTTP to it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import aiohttp
from msgspec.structs import replace
from yarl import URL

from evalfleet import config
from evalfleet.model import Role
from evalfleet.store.open import open_store
from evalfleet.web.security import tokens
from evalfleet.web.server import Options, Server, running


@dataclass
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes
    json: Any


@dataclass
class Client:
    server: Server
    session: aiohttp.ClientSession
    operator: str
    reader: str

    async def ask(
        self, path: str, method: str = "GET", *, token: str | None = "", data: Any = None, **headers: str
    ) -> Reply:
        """One request; token "" is the operator's, None: none. The path is sent as it is."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if token is not None:
            sent["Authorization"] = f"Bearer {token or self.operator}"
        body: dict[str, Any] = (
            {"data": data} if isinstance(data, bytes | BytesIO) else {"json": data if data is not None else {}}
        )
        if method == "GET":
            body = {}
        url = URL(self.server.url.rstrip("/") + path, encoded=True)
        async with self.session.request(method, url, headers=sent, allow_redirects=False, **body) as reply:
            content = await reply.read()
            parsed = await reply.json() if reply.content_type == "application/json" else None
            return Reply(reply.status, dict(reply.headers), content, parsed)

    async def cookie(self, token: str = "") -> str:
        """The Cookie header of a browser that entered with the token."""
        reply = await self.ask(f"/?token={token or self.operator}", token=None)
        assert reply.status == 303, reply.body
        return reply.headers["Set-Cookie"].partition(";")[0]

    async def get(self, path: str) -> Any:
        reply = await self.ask(f"/api/v1/{path}")
        assert reply.status == 200, reply.body
        return reply.json

    async def post(self, path: str, data: Any = None, status: int = 200) -> Any:
        reply = await self.ask(f"/api/v1/{path}", "POST", data=data)
        assert reply.status == status, reply.body
        return reply.json


@asynccontextmanager
async def serving(home: Path, options: Options | None = None, **alerts: Any) -> AsyncGenerator[Client]:
    settings = replace(config.load(home, environ={}, folder=home.parent), alerts=config.AlertSettings(**alerts))
    with closing(open_store(home)) as store:
        operator = tokens.make(store, "boss", Role.OPERATOR).text
        reader = tokens.make(store, "guest", Role.READER).text
    async with (
        running(settings, options or Options(port=0, drive=False)) as server,
        aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=True) as session,
    ):
        yield Client(server, session, operator, reader)
