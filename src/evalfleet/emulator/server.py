"""An emulator as a process or inside a test: it starts, reports its address, and ends with all its hosts."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import IO

import anyio
from aiohttp import web
from msgspec import Struct, field

from evalfleet.emulator import app, tls, work_folder
from evalfleet.emulator.arm.access.identity import CLIENT, TENANT
from evalfleet.emulator.clock import Clock
from evalfleet.emulator.context import Addresses, EmulatorContext
from evalfleet.emulator.control import Control
from evalfleet.emulator.docker.daemon import Dockerd
from evalfleet.emulator.machines.guests import Guests
from evalfleet.emulator.scenario import Eviction, Scenario
from evalfleet.emulator.storage import Storage
from evalfleet.errors import InputError

LOOPBACK = "127.0.0.1"


class Options(Struct, frozen=True, kw_only=True):
    """How to run an emulator."""

    port: int = 0
    speed: float = 100.0
    scenario: Scenario = field(default_factory=Scenario)
    seed: int | None = None
    traffic: Path | None = None  # where every exchange is written down
    tls: bool = False


class Emulator(Struct, frozen=True, kw_only=True):
    url: str
    ssh_port: int
    world: EmulatorContext
    certificate: Path | None = None  # what clients must trust

    def settings(self) -> dict[str, str]:
        """Return the variables that point evalfleet at it."""
        signing = {
            "SSL_CERT_FILE": str(self.certificate),
            "AZURE_TENANT_ID": TENANT,
            "AZURE_CLIENT_ID": CLIENT,
            "AZURE_CLIENT_SECRET": self.world.secret,
        }
        return (signing if self.certificate else {}) | {
            "EVALFLEET_AZURE_PROFILE": "emulator",
            "EVALFLEET_AZURE_EMULATOR": self.url,
            "EVALFLEET_AZURE_SSH_PORT": str(self.ssh_port),
            "EVALFLEET_AZURE_STORAGE": self.world.storage_url,
            "EVALFLEET_AZURE_SPEED": f"{self.world.clock.speed:g}",
        }


@asynccontextmanager
async def running(options: Options) -> AsyncGenerator[Emulator]:
    """Run an emulator until the block ends; then no host, process or file of it is left."""
    with work_folder.opened() as folder, _written(options.traffic) as traffic, _reserved_port() as ssh_port:
        async with anyio.create_task_group() as tasks:
            world = EmulatorContext(
                clock=Clock(options.speed),
                scenario=options.scenario,
                folder=folder,
                tasks=tasks,
                addresses=Addresses(ssh_port),
                seed=options.scenario.seed if options.seed is None else options.seed,
                traffic=traffic,
            )
            world.signs_in = options.tls
            services = app.build(world)
            secure, certificate = tls.made(folder) if options.tls else (None, None)
            async with (
                _listening(services.app, options.port, secure) as (url, plain),
                _docker(services.dockerd, services.guests) as docker_at,
                Storage(
                    world.faults_of, folder / "storage", require=lambda: world.require_service("storage")
                ).running() as storage,
            ):
                world.base_url, world.plain_url, world.docker_at = url, plain, docker_at
                world.storage_url = storage.url
                for eviction in options.scenario.eviction:
                    tasks.start_soon(_evict, world, services.control, eviction)
                try:
                    yield Emulator(url=url, ssh_port=world.addresses.port, world=world, certificate=certificate)
                finally:
                    tasks.cancel_scope.cancel()
                    with anyio.CancelScope(shield=True):
                        await services.machines.close()
                        await services.ml.close()


@contextmanager
def _written(path: Path | None) -> Generator[IO[str] | None]:
    if path is None:
        yield None
        return
    try:
        file = path.open("a", encoding="utf-8")
    except OSError as error:
        raise InputError(f"--traffic {path}: cannot be written: {error.strerror}; name another file.") from None
    with file:
        yield file


@contextmanager
def _reserved_port() -> Generator[int]:
    """A port for the hosts' SSH servers. Kept bound, so that no other emulator gives its hosts the same one."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as reserved:
        reserved.bind((LOOPBACK, 0))
        yield reserved.getsockname()[1]


@asynccontextmanager
async def _listening(
    application: web.Application, port: int, secure: ssl.SSLContext | None
) -> AsyncGenerator[tuple[str, str]]:
    """Serve; the address for clients, and the one without TLS that machines ask for their metadata, as on Azure."""
    runner = web.AppRunner(application, access_log=None, handler_cancellation=True, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, LOOPBACK, port, ssl_context=secure).start()
        url = f"http://{LOOPBACK}:{runner.addresses[0][1]}"
        plain = url
        if secure is not None:
            await web.TCPSite(runner, LOOPBACK, 0).start()
            url, plain = f"https://{tls.NAME}:{runner.addresses[0][1]}", f"http://{LOOPBACK}:{runner.addresses[1][1]}"
        yield url, plain
    finally:
        with anyio.CancelScope(shield=True):
            await runner.cleanup()


@asynccontextmanager
async def _docker(dockerd: Dockerd, guests: Guests) -> AsyncGenerator[str]:
    listener = await asyncio.start_server(dockerd.serve, LOOPBACK, 0)
    try:
        yield f"{LOOPBACK}:{listener.sockets[0].getsockname()[1]}"
    finally:
        listener.close()
        guests.close()


async def _evict(world: EmulatorContext, control: Control, eviction: Eviction) -> None:
    """Take spot machines back at the times that the scenario names."""
    await world.clock.sleep(eviction.after)
    while True:
        control.evict_some(eviction)
        if eviction.every is None:
            return
        await world.clock.sleep(eviction.every)
        await asyncio.sleep(0.001)  # at speed 0 the others must come to their turn


async def until_told(stop: asyncio.Event) -> None:
    """Wait for SIGTERM or SIGINT."""
    import signal

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await stop.wait()
