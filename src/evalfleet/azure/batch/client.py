"""A Batch account: where it is, what it may have, and the client of its data plane. Imports Azure's libraries."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from azure.core.exceptions import HttpResponseError, ResourceExistsError, ResourceNotFoundError
from msgspec import Struct

from evalfleet.azure.arm import code_of, judged
from evalfleet.azure.clients import Clients
from evalfleet.pools.cloud.problems import Action, Cause, Problem, Refusal

ACCOUNT_API = "2024-07-01"
TOO_SOON = "autoscaletoomanyrequeststoenable"
Body = dict[str, Any]


class BatchLimits(Struct, frozen=True, kw_only=True):
    """What Resource Manager tells of the account."""

    endpoint: str
    region: str
    dedicated_cores: int
    low_priority_cores: int


class BatchAccount:
    """Requests to one account, judged. Answers are plain objects, as Batch writes them. All methods raise Refusal."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._limits: BatchLimits | None = None
        self._client: Any = None

    @property
    def name(self) -> str:
        return self._clients.settings.batch_account or ""

    async def limits(self) -> BatchLimits:
        """Looked up once: an account does not move, and its quotas change by a person's request only."""
        if self._limits is None:
            reach = self._clients.settings
            path = f"{reach.group_path()}/providers/Microsoft.Batch/batchAccounts/{self.name}"
            async with judged():
                body = await self._clients.arm.get(path, ACCOUNT_API)
            if body is None:
                said = (
                    f"there is no Batch account {self.name!r} in resource group {reach.resource_group!r}; "
                    f"`az batch account create -n {self.name} -g {reach.resource_group} -l REGION` makes it"
                )
                raise Refusal(Problem(cause=Cause.NOT_FOUND, action=Action.GIVE_UP, message=said))
            told = body["properties"]
            self._limits = BatchLimits(
                endpoint=reach.batch_url(told["accountEndpoint"]),
                region=body["location"],
                dedicated_cores=int(told.get("dedicatedCoreQuota") or 0),
                low_priority_cores=int(told.get("lowPriorityCoreQuota") or 0),
            )
        return self._limits

    @asynccontextmanager
    async def _opened(self) -> AsyncGenerator[Any]:
        if self._client is None:
            self._client = self._clients.make_batch((await self.limits()).endpoint)
        async with judged():
            yield self._client

    # Pools

    async def pools(self) -> list[Body]:
        async with self._opened() as client:
            return [pool.as_dict() async for pool in client.list_pools()]

    async def pool(self, name: str) -> Body | None:
        return await self._maybe(lambda client: client.get_pool(name))

    async def add_pool(self, body: Body) -> None:
        """One that is there stays as it is."""
        async with self._opened() as client:
            try:
                await client.create_pool(body)
            except ResourceExistsError as error:
                if code_of(error) != "poolexists":
                    raise

    async def set_formula(self, pool: str, formula: str, interval: str) -> bool:
        """False: one was set less than 30 seconds ago."""
        body = {"autoScaleFormula": formula, "autoScaleEvaluationInterval": interval}
        async with self._opened() as client:
            try:
                await client.enable_pool_auto_scale(pool, body)
            except HttpResponseError as error:
                if code_of(error) == TOO_SOON:
                    return False
                raise
        return True

    async def delete_pool(self, name: str) -> None:
        await self._gone(lambda client: client.begin_delete_pool(name), "poolbeingdeleted")

    # Nodes

    async def nodes(self, pool: str) -> list[Body]:
        async with self._opened() as client:
            return [node.as_dict() async for node in client.list_nodes(pool)]

    async def reimage(self, pool: str, node: str) -> None:
        async with self._opened() as client:
            # Without options the library fails before it asks.
            await client.begin_reimage_node(pool, node, {"nodeReimageOption": "terminate"})

    async def remove_node(self, pool: str, node: str) -> None:
        async with self._opened() as client:
            await client.begin_remove_nodes(pool, {"nodeList": [node], "nodeDeallocationOption": "terminate"})

    # Jobs

    async def jobs(self) -> list[Body]:
        async with self._opened() as client:
            return [job.as_dict() async for job in client.list_jobs()]

    async def job(self, name: str) -> Body | None:
        return await self._maybe(lambda client: client.get_job(name))

    async def task(self, job: str, name: str) -> Body | None:
        return await self._maybe(lambda client: client.get_task(job, name))

    async def add_job(self, body: Body) -> bool:
        """False: there is one of that name."""
        async with self._opened() as client:
            try:
                await client.create_job(body)
            except ResourceExistsError as error:
                if code_of(error) != "jobexists":
                    raise
                return False
        return True

    async def change_job(self, name: str, body: Body) -> None:
        async with self._opened() as client:
            await client.update_job(name, body)

    async def delete_job(self, name: str) -> bool:
        """False: there is none."""
        return await self._gone(lambda client: client.begin_delete_job(name), "jobbeingdeleted")

    # Files

    async def task_file(self, job: str, task: str, path: str) -> str:
        return await self._text(lambda client: client.download_task_file(job, task, path))

    async def node_file(self, pool: str, node: str, path: str) -> str:
        return await self._text(lambda client: client.download_node_file(pool, node, path))

    async def _text(self, ask: Callable[[Any], Awaitable[Any]]) -> str:
        """Empty where the file or its node is gone."""
        async with self._opened() as client:
            try:
                parts = await ask(client)
                return b"".join([part async for part in parts]).decode("utf-8", "replace")
            except (ResourceNotFoundError, ResourceExistsError):
                return ""

    async def _maybe(self, ask: Callable[[Any], Awaitable[Any]]) -> Body | None:
        async with self._opened() as client:
            try:
                return (await ask(client)).as_dict()
            except ResourceNotFoundError:
                return None

    async def _gone(self, ask: Callable[[Any], Awaitable[Any]], under_way: str) -> bool:
        async with self._opened() as client:
            try:
                await ask(client)
            except ResourceNotFoundError:
                return False
            except ResourceExistsError as error:
                if code_of(error) != under_way:
                    raise
        return True
