"""A workspace of Azure ML in an emulator inside the test, with our own client in front of it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import anyio
from msgspec.structs import replace
from tests.support.cloud import Cloud, cloud

from evalfleet.azure.ml import requests
from evalfleet.azure.ml.requests import API, Body
from evalfleet.emulator.scenario import Scenario

IMAGE = "python:3.11"
ENDED = ("Completed", "Failed", "Canceled")
PATIENCE_S = 60


@dataclass
class Workspace:
    """What tests do with a workspace."""

    here: Cloud
    path: str

    @property
    def arm(self) -> Any:
        return self.here.clients.arm

    async def cluster(self, name: str = "c1", *, most: int = 2, **more: Any) -> Body:
        body = requests.cluster_body(
            **{"region": "eastus", "size": "Standard_D4ds_v5", "spot": False, "labels": {}, **more, "most": most}
        )
        return await self.arm.put(f"{self.path}/computes/{name}", API, body)

    async def submit(self, name: str, command: str, *, compute: str = "c1", image: str = IMAGE, **more: Any) -> Body:
        environment = f"{self.path}/environments/e/versions/{abs(hash(image))}"
        await self.arm.put(environment, API, requests.environment_body(image, {}))
        body = requests.job_body(
            **{
                "compute_id": f"{self.path}/computes/{compute}",
                "environment_id": environment,
                "command": command,
                "variables": {},
                "labels": {},
                "timeout_s": 3600.0,
                **more,
            }
        )
        return await self.arm.put(f"{self.path}/jobs/{name}", API, body)

    async def job(self, name: str) -> Body:
        return (await self.arm.get(f"{self.path}/jobs/{name}", API))["properties"]

    async def wait(self, holds: Callable[[], Awaitable[object]]) -> None:
        """Ask until the answer is yes."""
        with anyio.fail_after(PATIENCE_S):
            while not await holds():  # noqa: ASYNC110 - a cloud tells nobody
                await anyio.sleep(0.02)

    async def until(self, name: str, *statuses: str) -> Body:
        async def holds() -> bool:
            return (await self.job(name))["status"] in statuses

        await self.wait(holds)
        return await self.job(name)

    async def until_state(self, name: str, state: str) -> None:
        """Wait for a state of a compute instance."""

        async def holds() -> bool:
            return (await self.compute(name))["state"] == state

        await self.wait(holds)

    async def ended(self, name: str) -> str:
        return (await self.until(name, *ENDED))["status"]

    async def cancel(self, name: str) -> None:
        await self.arm.post(f"{self.path}/jobs/{name}/cancel", API)

    async def compute(self, name: str = "c1") -> Body:
        return (await self.arm.get(f"{self.path}/computes/{name}", API))["properties"]["properties"]

    async def nodes(self, name: str = "c1") -> list[Body]:
        return (await self.arm.post(f"{self.path}/computes/{name}/listNodes", API))["nodes"]

    async def drop(self, name: str = "c1") -> None:
        await self.arm.delete(f"{self.path}/computes/{name}", API, {"underlyingResourceAction": "Delete"})

    async def logs(self, job: str) -> dict[str, str]:
        """All logs of a job, by name."""
        details = await self.arm.get(f"/history/v1.0{self.path}/runs/{job}/details", "")
        return {name: await self._text(url) for name, url in details["logFiles"].items()}

    async def _text(self, url: str) -> str:
        async with self.here.http.get(url) as answer:
            return await answer.text()


@asynccontextmanager
async def workspace(scenario: Scenario | None = None, *, speed: float = 0) -> AsyncGenerator[Workspace]:
    async with cloud(scenario, speed=speed) as here:
        yield Workspace(here, replace(here.settings, workspace="evalfleet").workspace_path())
