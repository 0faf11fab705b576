"""One workspace of Azure ML: its jobs, computes, environments and logs, by path. Raises the errors of azure-core."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from evalfleet.azure.arm import Arm, Body
from evalfleet.azure.ml import responses
from evalfleet.azure.ml.requests import API
from evalfleet.azure.settings import AzureSettings
from evalfleet.pools.cloud.records import LABEL_POOL

# What a job is made of; the rest of what Azure shows of it cannot be sent back.
_OURS = (
    *("jobType", "displayName", "experimentName", "computeId", "environmentId", "command", "environmentVariables"),
    *("resources", "limits", "tags", "isArchived"),
)
_DELETE = {"underlyingResourceAction": "Delete"}


class Workspace:
    """Only what carries our labels is ever listed."""

    def __init__(self, arm: Arm, settings: AzureSettings) -> None:
        self._arm = arm
        self._settings = settings
        self.path = settings.workspace_path()
        self._known: dict[str, str] = {}  # machine -> job, as far as seen
        self._history: str | None = None

    # Jobs

    async def jobs(self, pool: str | None = None) -> list[Body]:
        """Those that are not archived."""
        query = {"tag": LABEL_POOL, "listViewType": "ActiveOnly"}
        found = await self._arm.list(f"{self.path}/jobs", API, query)
        ours = [body for body in found if _is_of(body["properties"].get("tags"), pool)]
        self._known |= {responses.name_of(body["properties"]["tags"]): body["name"] for body in ours}
        return ours

    async def job_of(self, machine: str) -> Body | None:
        """The job of a machine; a new one is found by a list, one that was seen before by its name."""
        known = self._known.get(machine)
        body = None if known is None else await self.job(known)
        if body is not None and not body["properties"].get("isArchived"):
            return body
        self._known.pop(machine, None)
        return next((b for b in await self.jobs() if responses.name_of(b["properties"]["tags"]) == machine), None)

    async def job(self, job: str) -> Body | None:
        return await self._arm.get(f"{self.path}/jobs/{job}", API)

    async def submit(self, job: str, body: Body) -> None:
        await self._arm.begin_put(f"{self.path}/jobs/{job}", API, body)
        self._known[responses.name_of(body["properties"]["tags"])] = job

    async def change_job(self, body: Body, *, tags: Mapping[str, str] | None = None, archived: bool = False) -> None:
        """Change its labels, or take it off the lists of jobs: a job that has ended cannot be deleted, and costs nothing."""
        kept: Body = {name: body["properties"][name] for name in _OURS if name in body["properties"]}
        kept["isArchived"] = archived
        if tags is not None:
            kept["tags"] = dict(tags)
        await self._arm.begin_put(f"{self.path}/jobs/{body['name']}", API, {"properties": kept})

    async def cancel(self, job: str) -> None:
        await self._arm.post(f"{self.path}/jobs/{job}/cancel", API)

    # Computes

    async def computes(self, pool: str | None = None) -> list[Body]:
        found = await self._arm.list(f"{self.path}/computes", API)
        return [body for body in found if _is_of(body.get("tags"), pool)]

    async def compute(self, name: str) -> Body | None:
        return await self._arm.get(f"{self.path}/computes/{name}", API)

    async def put_compute(self, name: str, body: Body, *, waits: bool) -> Body:
        put = self._arm.put if waits else self._arm.begin_put
        return await put(f"{self.path}/computes/{name}", API, body)

    async def delete_compute(self, compute_id: str) -> None:
        """Delete it, and wait until it is gone."""
        await self._arm.delete(compute_id, API, _DELETE)

    async def begin_delete_compute(self, name: str) -> bool:
        return await self._arm.begin_delete(f"{self.path}/computes/{name}", API, _DELETE)

    # Environments

    async def put_environment(self, name: str, version: str, body: Body) -> str:
        path = f"{self.path}/environments/{name}/versions/{version}"
        await self._arm.begin_put(path, API, body)
        return path

    async def delete_environments(self, name: str) -> None:
        for body in await self._arm.list(f"{self.path}/environments/{name}/versions", API):
            await self._arm.delete(body["id"], API)

    # Logs and quota

    async def logs(self, job: str) -> dict[str, str]:
        """Where the logs of a job can be read, by path."""
        details = await self._arm.get(f"{await self._history_url()}{self.path}/runs/{job}/details", "")
        return dict(details["logFiles"]) if details and details.get("logFiles") else {}

    async def _history_url(self) -> str:
        """The run history is a service of the workspace's region, at the address where that is discovered."""
        if self._history is None:
            body: Any = await self._arm.get(self.path, API)
            where = urlsplit(body["properties"]["discoveryUrl"] if body else self._settings.arm_url)
            self._history = f"{where.scheme}://{where.netloc}/history/v1.0"
        return self._history

    async def usages(self, region: str) -> dict[str, tuple[int, int]]:
        """What is used of each counter, and its limit."""
        space = f"/subscriptions/{self._settings.subscription}/providers/Microsoft.MachineLearningServices"
        rows = await self._arm.list(f"{space}/locations/{region}/usages", API)
        return {row["name"]["value"]: (row["currentValue"], row["limit"]) for row in rows}


def _is_of(labels: Mapping[str, str] | None, pool: str | None) -> bool:
    found = (labels or {}).get(LABEL_POOL)
    return found is not None and pool in (None, found)
