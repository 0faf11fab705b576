"""Blob storage of the emulator: the real Azurite, behind a proxy that scenarios can make fail.

Faults are those of the emulator, with the operations `blob.get`, `blob.put`, `blob.delete`, `container.list`, `container.put`,
`container.delete` and the attributes `container` and `name`. The presets `storage_outage` and `sas_expired` are its own answers.
"""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import TypeAlias

import aiohttp
import anyio
from aiohttp import web
from yarl import URL

from evalfleet.azure.storage import EMULATOR_ACCOUNT
from evalfleet.emulator.arm.protocol import ArmError
from evalfleet.emulator.faults import Fault, error_of
from evalfleet.errors import InputError

START_S = 60.0
FaultsOf: TypeAlias = Callable[[str, Mapping[str, str]], Iterable[Fault]]
_LOOPBACK = "127.0.0.1"
_METHODS = {"GET": "get", "HEAD": "get", "PUT": "put", "POST": "put", "DELETE": "delete"}
_HOPS = frozenset({"connection", "keep-alive", "transfer-encoding", "content-length", "content-encoding", "host"})


def find_azurite(root: Path | None = None) -> str:
    """The program. Raises InputError where it is not installed."""
    root = root or Path(__file__).parents[3]
    found = sorted(root.glob(".azurite/*/node_modules/.bin/azurite-blob"))
    program = str(found[-1]) if found else shutil.which("azurite-blob")
    if program is None:
        raise InputError("blob storage is emulated by Azurite, which is not installed; run `npm install -g azurite`")
    return program


@asynccontextmanager
async def azurite(folder: Path, *more: str) -> AsyncGenerator[str]:
    """Run Azurite inside the block; its address, without the account.

    Raises InputError where it is not installed or does not start.
    """
    await anyio.Path(folder).mkdir(parents=True, exist_ok=True)
    quiet = ("--silent", "--disableTelemetry", "--skipApiVersionCheck", "--inMemoryPersistence")
    process = await asyncio.create_subprocess_exec(
        find_azurite(), *quiet, "--blobPort", "0", *more, cwd=folder, stdout=asyncio.subprocess.PIPE
    )
    try:
        yield await _address(process)
    finally:
        with anyio.CancelScope(shield=True):
            with suppress(ProcessLookupError):
                process.kill()
            await process.communicate()


async def _address(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    with anyio.move_on_after(START_S):
        async for line in process.stdout:
            found = re.search(r"https?://127\.0\.0\.1:\d+", line.decode())
            if found:
                return found[0]
    raise InputError("Azurite did not start")


class Storage:
    """The proxy. Azurite is started when the first request comes: most scenarios need no storage."""

    def __init__(
        self, faults_of: FaultsOf, folder: Path, base: str = "", *, require: Callable[[], None] = lambda: None
    ) -> None:
        """
        Args:
            faults_of: the faults that hit an operation.
            folder: where Azurite may write.
            base: the address of an Azurite that runs already.
            require: raises ArmError while storage is out.
        """
        self._faults_of = faults_of
        self._require = require
        self._folder = folder
        self._stack = AsyncExitStack()
        self._starting = anyio.Lock()
        self._base = base
        self._session: aiohttp.ClientSession | None = None
        self.url = ""  # of the account

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[Storage]:
        """Listen inside the block."""
        app = web.Application(client_max_size=1 << 30)
        app.router.add_route("*", "/{tail:.*}", self._serve)
        runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=1.0)
        await runner.setup()
        try:
            async with self._stack:
                await web.TCPSite(runner, _LOOPBACK, 0).start()
                self.url = f"http://{_LOOPBACK}:{runner.addresses[0][1]}/{EMULATOR_ACCOUNT}"
                yield self
        finally:
            with anyio.CancelScope(shield=True):
                await runner.cleanup()

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        op, attributes = _operation(request)
        try:
            self._require()
        except ArmError as error:
            return _answer(error)
        for fault in self._faults_of(op, attributes):
            answer = await _failure(fault, attributes)
            if answer is not None:
                return answer
            if fault.drop and request.transport is not None:
                request.transport.abort()
        return await self._pass_on(request)

    async def _pass_on(self, request: web.Request) -> web.Response:
        session = await self._started()
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _HOPS}
        address = URL(self._base + request.raw_path, encoded=True)
        async with session.request(request.method, address, headers=headers, data=await request.read()) as answer:
            kept = {name: value for name, value in answer.headers.items() if name.lower() not in _HOPS}
            return web.Response(status=answer.status, headers=kept, body=await answer.read())

    async def _started(self) -> aiohttp.ClientSession:
        async with self._starting:
            if self._session is None:
                self._base = self._base or await self._stack.enter_async_context(azurite(self._folder))
                self._session = await self._stack.enter_async_context(aiohttp.ClientSession(auto_decompress=False))
        return self._session


def _operation(request: web.Request) -> tuple[str, dict[str, str]]:
    _, _, rest = request.path.lstrip("/").partition("/")
    container, _, name = rest.partition("/")
    kind = "list" if request.query.get("comp") == "list" else _METHODS.get(request.method, "get")
    return f"{'blob' if name else 'container'}.{kind}", {"container": container, "name": name}


async def _failure(fault: Fault, attributes: dict[str, str]) -> web.Response | None:
    """The answer that a fault stands for; None if the request goes on."""
    await asyncio.sleep(fault.delay)
    if fault.hang:
        await asyncio.Event().wait()
    error = error_of(fault, attributes)
    return None if error is None else _answer(error)


def _answer(error: ArmError) -> web.Response:
    text = f'<?xml version="1.0" encoding="utf-8"?><Error><Code>{error.code}</Code><Message>{error}</Message></Error>'
    return web.Response(
        status=error.status, text=text, content_type="application/xml", headers={"x-ms-error-code": error.code}
    )
