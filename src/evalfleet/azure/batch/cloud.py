"""One Batch account as pools see it: machines are pilots, each a job of its own. Imports Azure's libraries.

What `Cloud` promises holds here, too: every call may be made again after a crash, and none waits for a long operation.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import anyio
from msgspec.structs import replace

from evalfleet.azure import prices, sizes
from evalfleet.azure.batch import requests, views
from evalfleet.azure.batch.client import BatchAccount, Body
from evalfleet.azure.batch.requests import INTERVAL, PILOT
from evalfleet.azure.batch.views import JobView
from evalfleet.azure.clients import Clients
from evalfleet.azure.images import Images
from evalfleet.azure.requests.vm import disk_kind
from evalfleet.core.hosts.lifecycle import Stage
from evalfleet.hosts.base import first_error
from evalfleet.layout import Home
from evalfleet.pools.cloud import records
from evalfleet.pools.cloud.problems import Action, Cause, Problem, Refusal
from evalfleet.pools.cloud.records import (
    LABEL_EXPIRES,
    LABEL_POOL,
    Creation,
    MachineSpec,
    MachineView,
    Offering,
    Progress,
    Resource,
    Verb,
)

AT_A_TIME = 10
SOON_S = 2.0  # how exactly a deadline is kept: Batch counts whole seconds
REIMAGED = 1  # times that a broken node is set up anew before it is removed
_LIVE = ("active", "enabling")
_LOGS = {"pilot-errors": "stderr.txt", "pilot": "stdout.txt"}
_NODE_LOGS = {"start-task-errors": "startup/stderr.txt", "start-task": "startup/stdout.txt"}


class BatchCloud:
    """Implements `Cloud` and `KeepsLogs`."""

    def __init__(self, clients: Clients, home: Home) -> None:
        self._settings = clients.settings
        self._arm = clients.arm
        self._account = BatchAccount(clients)
        self._images = Images(clients)
        self._prices = prices.load(home.prices)
        self._reimaged: dict[str, int] = {}  # by node
        self._wanted: dict[str, int] = {}  # nodes, by Batch pool

    @property
    def poll_s(self) -> float:
        return self._settings.poll_s

    @property
    def skew_s(self) -> float:
        return self._arm.skew_s

    # Machines

    async def list(self, pool: str | None = None) -> list[JobView]:
        jobs = [job for job in await self._account.jobs() if _is_of(job, pool)]
        tasks: dict[str, Body | None] = {}
        limit = anyio.Semaphore(AT_A_TIME)

        async def ask(name: str) -> None:
            async with limit:
                tasks[name] = await self._account.task(name, PILOT)

        with first_error(Refusal):
            async with anyio.create_task_group() as group:
                for job in jobs:
                    group.start_soon(ask, str(job["id"]))
        return [views.job_view(job, tasks[str(job["id"])]) for job in jobs]

    async def view(self, name: str) -> JobView | None:
        job = await self._account.job(name)
        return None if job is None else views.job_view(job, await self._account.task(name, PILOT))

    async def create(self, spec: MachineSpec, stops_at: float) -> Creation:
        """Its deadline is a part of the job."""
        spec = replace(spec, expires_at=spec.expires_at + self.skew_s)
        await self._account.add_pool(requests.pool_body(spec, self._settings))
        is_new = await self._account.add_job(requests.job_body(spec, stops_at, time.time()))
        pool = requests.pool_id(spec.pool, spec.owner, spec.size, spot=spec.spot)
        return Creation(continuation=pool if is_new else None)

    async def start(self, name: str) -> str:
        raise _cannot(f"{name}: a Batch node that is gone cannot be started again")

    async def stop(self, name: str) -> str:
        raise _cannot(f"{name}: a Batch node cannot be stopped and kept")

    async def delete(self, name: str) -> str | None:
        job = await self._account.job(name)
        if job is None or not await self._account.delete_job(name):
            return None
        return str(job["poolInfo"]["poolId"])

    async def poll(self, verb: Verb, name: str, continuation: str, offering: Offering | None = None) -> Progress:
        """The continuation is the Batch pool, whose number of nodes follows the number of its jobs."""
        view = await self.view(name)
        if verb is Verb.DELETE:
            is_done = view is None and await self._scale(continuation)
            return Progress(done=is_done, look_again_s=self.poll_s)
        if view is None:
            return Progress(done=True, forgotten=True)
        if view.stage is not Stage.CREATING:
            return Progress(done=True, problem=view.problem)
        is_scaled = await self._scale(continuation)
        problem = await self._trouble(continuation, view) if is_scaled else None
        return Progress(done=problem is not None, problem=problem, look_again_s=self.poll_s)

    async def endpoint(self, name: str) -> records.Endpoint | None:
        return None  # it is reached through its box

    # The number of nodes

    async def _scale(self, pool: str) -> bool:
        """Let the Batch pool have a node for each of its jobs. False: it must be asked again later."""
        found = await self._account.pool(pool)
        if found is None or found["state"] == "deleting":
            return True
        jobs = [job for job in await self._account.jobs() if job["poolInfo"]["poolId"] == pool]
        live = [views.job_view(job, None) for job in jobs if job["state"] in _LIVE]
        until = max((one.made_at + one.limit_s for one in live), default=0.0)
        self._wanted[pool] = len(live)
        spot = views.pairs(found.get("metadata")).get(requests.SPOT) == "true"
        wanted = requests.formula(len(live), until, spot=spot)
        return found.get("autoScaleFormula") == wanted or await self._account.set_formula(pool, wanted, INTERVAL)

    async def _trouble(self, pool: str, view: JobView) -> Problem | None:
        """Why no node comes for a pilot that waits. A broken node is set up anew, and then removed."""
        found = await self._account.pool(pool)
        if found is None:
            return _problem("its Batch pool was deleted")
        target = int(found.get("targetLowPriorityNodes" if view.spot else "targetDedicatedNodes") or 0)
        is_settled = found["allocationState"] == "steady"
        if is_settled and target == self._wanted.get(pool):  # else the errors are those of an earlier number
            problem = views.resize_problem(found, region=view.region, size=view.size, spot=view.spot)
            if problem is not None:
                return problem
        for node in views.broken_nodes(await self._account.nodes(pool)):
            name = str(node["id"])
            if self._reimaged.get(name, 0) < REIMAGED:
                self._reimaged[name] = self._reimaged.get(name, 0) + 1
                await self._account.reimage(pool, name)
                continue
            said = views.node_trouble(node) + await self._last_words(pool, name)
            if is_settled:
                await self._account.remove_node(pool, name)
                return _problem(said)
        return None

    async def _last_words(self, pool: str, node: str) -> str:
        lines = (await self._account.node_file(pool, node, _NODE_LOGS["start-task-errors"])).strip().splitlines()
        return f"; it says {lines[-1][:200]!r}" if lines else ""

    # Logs

    async def log(self, name: str) -> str:
        return ""  # Batch keeps no console

    async def logs(self, name: str) -> Sequence[str]:
        found = [log for log in (*_LOGS, *_NODE_LOGS) if await self.read_log(name, log, 1)]
        return tuple(found)

    async def read_log(self, name: str, log: str, limit: int) -> str:
        view = await self.view(name)
        if view is None or limit <= 0:
            return ""
        if log in _LOGS:
            return (await self._account.task_file(name, PILOT, _LOGS[log]))[-limit:]
        node = view.node or await self._broken_node(view.batch_pool)
        if log not in _NODE_LOGS or node is None:
            return ""
        return (await self._account.node_file(view.batch_pool, node, _NODE_LOGS[log]))[-limit:]

    async def _broken_node(self, pool: str) -> str | None:
        """The node whose start task a pilot waits for in vain."""
        if await self._account.pool(pool) is None:
            return None
        found = views.broken_nodes(await self._account.nodes(pool))
        return str(found[0]["id"]) if found else None

    # Deadlines

    async def set_deadline(self, name: str, region: str, labels: Mapping[str, str], at: float) -> None:
        view = await self.view(name)
        if view is None:
            raise Refusal(Problem(cause=Cause.NOT_FOUND, action=Action.WAIT, message=f"there is no job {name}"))
        await self._account.change_job(name, {"constraints": requests.limits(at + self.skew_s - view.made_at)})

    async def has_deadline(self, name: str, at: float) -> bool:
        view = await self.view(name)
        return view is not None and abs(view.made_at + view.limit_s - at - self.skew_s) < SOON_S

    async def drop_deadline(self, name: str) -> None:
        pass  # it went with the job

    async def extend(self, view: MachineView, expires_at: float) -> None:
        now = await self.view(view.name)
        if now is not None:
            moved = {**view.labels, LABEL_EXPIRES: records.expires_text(expires_at + self.skew_s)}
            await self._account.change_job(view.name, {"metadata": requests.moved_labels(moved, now.extra)})

    # What is around machines

    async def resources(self, pool: str | None = None) -> list[Resource]:
        region = (await self._account.limits()).region
        jobs = [views.job_resource(job, region) for job in await self._account.jobs() if _is_of(job, pool)]
        pools = [views.pool_resource(one, region) for one in await self._account.pools() if _is_of(one, pool)]
        return [*jobs, *pools]

    async def delete_resource(self, resource: Resource) -> None:
        if resource.type.endswith("/jobs"):
            await self._account.delete_job(resource.name)
            while await self._account.job(resource.name) is not None:  # noqa: ASYNC110 - Batch tells nobody
                await anyio.sleep(self.poll_s)
            return
        await self._account.delete_pool(resource.name)
        while await self._account.pool(resource.name) is not None:  # noqa: ASYNC110
            await anyio.sleep(self.poll_s)

    async def prepare_region(self, pool: str, region: str, owner: str) -> None:
        there = (await self._account.limits()).region
        if there.lower() != region.lower():
            said = f"the Batch account {self._account.name} is in {there}, not in {region}: use --regions {there}"
            raise Refusal(Problem(cause=Cause.REQUEST, action=Action.NEXT_REGION, message=said))

    async def clean_region(self, pool: str, region: str) -> None:
        """Delete the Batch pools, but those that have jobs: they may be of another home with a pool of the same name."""
        used = {job["poolInfo"]["poolId"] for job in await self._account.jobs()}
        for one in await self._account.pools():
            if _is_of(one, pool) and one["id"] not in used:
                await self.delete_resource(views.pool_resource(one, region))

    async def image(self, name: str) -> str | None:
        found = await self._images.find(name)
        return None if found is None else found.id

    # Money

    def price(self, offering: Offering, disk_gb: int) -> records.Price:
        size = sizes.find(offering.size)
        offering = replace(offering, size=size.name)
        found, at_most = self._prices.find(offering), False
        if found is None and offering.spot:
            found, at_most = self._prices.find(replace(offering, spot=False)), True
        return records.Price(
            usd_per_hour=found.usd_per_hour if found else None,
            kept_usd_per_hour=prices.disk_usd_per_hour(disk_kind(size), disk_gb),
            at_most=at_most,
        )

    async def quota(self, offering: Offering) -> records.Quota | None:
        limits = await self._account.limits()
        name, count = ("lowPriorityCoreQuota", "currentLowPriorityNodes")
        limit = limits.low_priority_cores
        if not offering.spot:
            name, count, limit = "dedicatedCoreQuota", "currentDedicatedNodes", limits.dedicated_cores
        cores = 0
        for pool in await self._account.pools():
            size = sizes.known(str(pool["vmSize"]))
            cores += int(pool.get(count) or 0) * (size.vcpus if size else 0)
        return records.Quota(family=name, used=cores, limit=limit, region=limits.region)


def _is_of(body: Body, pool: str | None) -> bool:
    """Whether it is a job or a Batch pool of that pool, or of any of ours."""
    labels = views.pairs(body.get("metadata"))
    return LABEL_POOL in labels and pool in (None, labels[LABEL_POOL])


def _problem(message: str) -> Problem:
    return Problem(cause=Cause.PROVISIONING, action=Action.NEXT_REGION, message=message)


def _cannot(message: str) -> Refusal:
    return Refusal(Problem(cause=Cause.REQUEST, action=Action.GIVE_UP, message=message))
