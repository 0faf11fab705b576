"""The Batch account of an emulator inside the test, with Azure's real client in front of it."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import anyio
from azure.batch.aio import BatchClient
from azure.batch.models import BatchJobCreateOptions, BatchPoolCreateOptions, BatchTaskCreateOptions
from azure.core.pipeline.policies import AsyncRetryPolicy, SansIOHTTPPolicy
from tests.support import azure_traffic

from evalfleet.emulator import server
from evalfleet.emulator.batch.accounts import PREFIX
from evalfleet.emulator.scenario import Scenario
from evalfleet.emulator.server import Emulator, Options

PATIENCE_S = 60
SIZE = "Standard_D2s_v3"
IMAGE = {
    "imageReference": {"publisher": "canonical", "offer": "0001-com-ubuntu-server-jammy", "sku": "22_04-lts"},
    "nodeAgentSKUId": "batch.node.ubuntu 22.04",
}


class Bearer(SansIOHTTPPolicy[Any, Any]):
    """Any token does."""

    def on_request(self, request: Any) -> None:
        request.http_request.headers["Authorization"] = "Bearer any"


@dataclass
class Account:
    emulator: Emulator
    client: Any

    async def add_pool(self, name: str = "p1", **body: Any) -> None:
        plain = {"id": name, "vmSize": SIZE, "virtualMachineConfiguration": IMAGE}
        await self.client.create_pool(BatchPoolCreateOptions({**plain, **body}))

    async def add_task(self, job: str, command: str, pool: str = "p1", **body: Any) -> None:
        """A job with one task."""
        await self.client.create_job(BatchJobCreateOptions({"id": job, "poolInfo": {"poolId": pool}}))
        await self.client.create_task(job, BatchTaskCreateOptions({"id": "t", "commandLine": command, **body}))

    async def nodes(self, pool: str = "p1") -> list[Any]:
        return [node async for node in self.client.list_nodes(pool)]

    async def states(self, pool: str = "p1") -> list[str]:
        return sorted(str(node.state.value) for node in await self.nodes(pool))

    async def until_task(self, job: str, state: str) -> Any:
        return await self.until(lambda: self.client.get_task(job, "t"), lambda task: task.state == state)

    async def until_states(self, *states: str, pool: str = "p1") -> None:
        await self.until(lambda: self.states(pool), lambda found: found == sorted(states))

    async def until(self, ask: Callable[[], Any], holds: Callable[[Any], bool]) -> Any:
        with anyio.fail_after(PATIENCE_S):
            while True:
                found = await ask()
                if holds(found):
                    return found
                await anyio.sleep(0.02)

    async def text(self, job: str, name: str) -> str:
        parts = await self.client.download_task_file(job, "t", name)
        return b"".join([part async for part in parts]).decode()

    def events(self, *kinds: str) -> list[str]:
        found = self.emulator.world.journal.events()
        return [event["type"] for event in found if event["type"] in kinds]


@asynccontextmanager
async def account(
    scenario: Scenario | None = None, *, speed: float = 2000, retries: int = 0, name: str = "evalfleet"
) -> AsyncGenerator[Account]:
    """Run an emulator; what was said to it and by it must be what Azure's own description knows."""
    began = time.monotonic()
    async with server.running(Options(speed=speed, scenario=scenario or Scenario())) as emulator:
        client = BatchClient(
            f"{emulator.url}{PREFIX}/{name}",
            object(),  # pyright: ignore[reportArgumentType] - never asked: the policy signs
            authentication_policy=Bearer(),
            retry_policy=AsyncRetryPolicy(retry_total=retries),
        )
        async with client:
            yield Account(emulator, client)
    assert time.monotonic() - began < 10 * PATIENCE_S
    azure_traffic.check(emulator.world.journal.exchanges())
