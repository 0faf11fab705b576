"""An emulator inside the test, with the real clients in front of it."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import asyncssh
from msgspec.structs import replace
from tests.support import azure_traffic

from evalfleet import config
from evalfleet.azure import clients, settings, sizes
from evalfleet.azure.clients import Clients
from evalfleet.azure.cloud import AzureCloud
from evalfleet.azure.network import Network, Networks
from evalfleet.azure.responses import VmView
from evalfleet.azure.settings import ADMIN_USER, AzureSettings
from evalfleet.emulator import server
from evalfleet.emulator.scenario import Scenario
from evalfleet.emulator.server import Emulator, Options
from evalfleet.layout import Home
from evalfleet.pools.cloud.records import MachineSpec, Progress, Verb
from evalfleet.pools.machine.keys import fresh_host_key

PATIENCE_S = 60
LOGIN: Any = asyncssh.generate_private_key("ssh-ed25519")


@dataclass
class Cloud:
    """One emulator, and what tests do with it."""

    emulator: Emulator
    settings: AzureSettings
    clients: Clients
    vms: AzureCloud
    http: aiohttp.ClientSession
    networks: Networks
    network: Network

    async def control(self, method: str, path: str, body: Any = None) -> Any:
        async with self.http.request(method, f"{self.emulator.world.plain_url}/emulator/{path}", json=body) as answer:
            return await answer.json() if answer.content_type == "application/json" else answer.status

    def events(self, kind: str | None = None) -> list[dict[str, Any]]:
        return self.emulator.world.journal.events(kind=kind)

    def exchanges(self, method: str, part: str) -> list[dict[str, Any]]:
        found = self.emulator.world.journal.exchanges()
        return [each for each in found if each["method"] == method and part in each["path"]]

    def traffic(self, text: str) -> list[dict[str, Any]]:
        """Return the exchanges and the SSH commands that have a text in them, such as a planted secret."""
        return self.emulator.world.journal.exchanges(text)

    def spec(self, name: str = "evalfleet-1", **changes: Any) -> MachineSpec:
        made = MachineSpec(
            name=name,
            worker=f"w-{name}",
            pool="p1",
            owner="me",
            expires_at=time.time() + 3600,
            size=sizes.DEFAULT_SIZE,
            region="eastus",
            login_key=LOGIN.export_public_key().decode().strip(),
            host_key=fresh_host_key(),
        )
        return replace(made, **changes)

    async def done(self, verb: Verb, name: str, continuation: str | None, spec: MachineSpec | None = None) -> Progress:
        """Poll until the operation ends."""
        assert continuation is not None
        with anyio.fail_after(PATIENCE_S):
            while True:
                progress = await self.vms.poll(verb, name, continuation, spec)
                if progress.done:
                    return progress
                await anyio.sleep(progress.look_again_s)

    async def made(self, spec: MachineSpec) -> VmView:
        """Create a VM, and wait for it."""
        progress = await self.done(Verb.CREATE, spec.name, await self.vms.order(spec, self.network), spec)
        assert progress.problem is None, progress.problem
        view = await self.vms.view(spec.name)
        assert view is not None
        return view

    async def until(self, kind: str, *, after: int = 0) -> dict[str, Any]:
        """Wait for an event, with a number above `after`."""
        with anyio.fail_after(PATIENCE_S):
            return (await self.emulator.world.journal.news(after, kind))[0]

    async def fault(self, **fault: Any) -> None:
        """Let something go wrong from now on."""
        answer = await self.control("POST", "faults", fault)
        assert "number" in answer, answer

    def folder(self, view: VmView) -> Path:
        """Where the disk of an in-process VM lies."""
        body = self.emulator.world.resources.find(view.id)
        assert body is not None
        return self.emulator.world.folder / "vms" / body["properties"]["vmId"]

    async def ssh(self, spec: MachineSpec, view: VmView, command: str) -> tuple[int | None, str]:
        """Run one command on a VM; its exit status, and all that it wrote."""
        async with self.login(spec, view) as connection:
            done = await connection.run(command)
            return done.exit_status, f"{done.stdout}{done.stderr}"

    @asynccontextmanager
    async def login(self, spec: MachineSpec, view: VmView) -> AsyncGenerator[asyncssh.SSHClientConnection]:
        """Log in, with the host key that we put in as the only one that is trusted."""
        address = await self.vms.address(view)
        assert address is not None
        port = self.settings.ssh_port
        host = address if port == 22 else f"[{address}]:{port}"
        known = asyncssh.import_known_hosts(f"{host} {spec.host_key.public}\n")
        async with asyncssh.connect(
            address, port, username=ADMIN_USER, client_keys=[LOGIN], known_hosts=known, config=None
        ) as connection:
            yield connection


@asynccontextmanager
async def cloud(scenario: Scenario | None = None, *, speed: float = 0, **more: Any) -> AsyncGenerator[Cloud]:
    """Run an emulator; the group and the pool's network in eastus are there already."""
    options = Options(speed=speed, scenario=scenario or Scenario(), **more)
    async with emulated(options) as emulator, connected(emulator.settings(), emulator) as here:
        yield here


@asynccontextmanager
async def emulated(options: Options) -> AsyncGenerator[Emulator]:
    """Run an emulator; what was said to it and by it must be what Azure's own description knows."""
    async with server.running(options) as emulator:
        yield emulator
    azure_traffic.check(emulator.world.journal.exchanges())


@asynccontextmanager
async def connected(environ: dict[str, str], emulator: Any = None) -> AsyncGenerator[Cloud]:
    """Connect to an emulator by the settings that it prints; one in another process is known by nothing else."""
    reach = settings.of(config.load("/nowhere", environ=environ, folder="/nowhere"))
    async with aiohttp.ClientSession() as http, clients.opened(reach) as opened:
        vms = AzureCloud(opened, Home(Path("/nowhere")))
        networks = Networks(opened)
        yield Cloud(emulator, reach, opened, vms, http, networks, await networks.ensure("p1", "eastus", "me"))
