"""Clusters of Azure ML as pools see them: a machine is a job that holds a pilot, one on each node. Imports Azure's libraries.

A cluster has no nodes of its own: they come when jobs wait, and go when they are idle. Azure ends a job when its time is
over, whether a controller lives or not.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, Sequence

import anyio
from azure.core.exceptions import HttpResponseError

from evalfleet.azure.arm import Body, judged
from evalfleet.azure.clients import Clients
from evalfleet.azure.ml import requests, responses
from evalfleet.azure.ml.base import WorkspaceCloud, is_deadline, left_s, log_names, problem_of
from evalfleet.azure.ml.responses import ENDED, LABEL_BEGAN, LABEL_OFFER, LABEL_PREPARED, PREPARING, QUEUED, JobView
from evalfleet.azure.responses import inside
from evalfleet.core.failures.kinds import one_line
from evalfleet.layout import Home
from evalfleet.pools.cloud.problems import Action, Cause, Problem, Refusal
from evalfleet.pools.cloud.records import (
    LABEL_EXPIRES,
    LABEL_OWNER,
    LABEL_POOL,
    Creation,
    MachineSpec,
    MachineView,
    Offering,
    Progress,
    Resource,
    Verb,
    expires_text,
)

# With Python, and nothing else that a pilot would need.
DEFAULT_IMAGE = "mcr.microsoft.com/azureml/openmpi4.1.0-ubuntu22.04:latest"
DOCKER_ARGS = "--cap-add NET_ADMIN"
KVM_ARGS = "--device=/dev/kvm"  # a node without the device refuses the container, and says so
COLD_IMAGE_S = 600.0  # in which a node must have the image
_WHY_CHARS = 2000
_LABELS = {"Running": LABEL_BEGAN, PREPARING: LABEL_PREPARED}  # when the job was first seen so


class MlCloud(WorkspaceCloud):
    """Implements `Cloud`, `LearnsOfferings` and `KeepsLogs`."""

    def __init__(self, clients: Clients, home: Home) -> None:
        super().__init__(clients, home)
        self._lock = anyio.Lock()  # machines that are asked for side by side share a cluster

    # Machines

    async def list(self, pool: str | None = None) -> list[JobView]:
        async with judged():
            return [responses.job_view(body) for body in await self._workspace.jobs(pool)]

    async def view(self, name: str) -> JobView | None:
        async with judged():
            body = await self._workspace.job_of(name)
        return None if body is None else responses.job_view(body)

    async def create(self, spec: MachineSpec, stops_at: float) -> Creation:
        assert spec.pilot is not None
        async with judged(spec.region, spec.size, spot=spec.spot):
            if await self._workspace.job_of(spec.name) is not None:
                return Creation(continuation=None)
            async with self._lock:
                compute_id = await self._cluster(spec)
                environment_id = await self._environment(spec.pool, spec.image or DEFAULT_IMAGE)
            body = requests.job_body(
                compute_id=compute_id,
                environment_id=environment_id,
                command=spec.pilot.command,
                variables=spec.pilot.secrets,
                labels=self._labels(spec, stops_at),
                timeout_s=left_s(stops_at),
                docker_args=f"{DOCKER_ARGS} {KVM_ARGS}" if spec.kvm else DOCKER_ARGS,
            )
            job = spec.worker.replace(".", "-")
            await self._workspace.submit(job, body)
        return Creation(continuation=job)

    async def _cluster(self, spec: MachineSpec) -> str:
        """The cluster for such machines of the pool; made where there is none."""
        name = cluster_name(spec)
        body = await self._workspace.compute(name)
        most = inside(body or {}, "properties", "properties", "scaleSettings", "maxNodeCount") or 0
        if body is not None and most >= spec.pool_limit:
            return str(body["id"])
        labels = {LABEL_POOL: spec.pool, LABEL_OWNER: spec.owner, LABEL_OFFER: responses.offer_text(spec.offering)}
        wanted = requests.cluster_body(
            region=spec.region,
            size=spec.size,
            spot=spec.spot,
            most=max(most, spec.pool_limit),
            labels={**self._settings.tags, **labels},
            identity=self._settings.identity,
        )
        return str((await self._workspace.put_compute(name, wanted, waits=True))["id"])

    async def _environment(self, pool: str, image: str) -> str:
        version = hashlib.sha256(image.encode()).hexdigest()[:12]
        body = requests.environment_body(image, {LABEL_POOL: pool})
        return await self._workspace.put_environment(environment_name(pool), version, body)

    async def start(self, name: str) -> str:
        raise await self._not_kept(name)

    async def stop(self, name: str) -> str:
        raise await self._not_kept(name)

    async def _not_kept(self, name: str) -> Refusal:
        is_there = await self.view(name) is not None
        said = f"{name} is a job, which cannot be stopped and started; delete it" if is_there else f"there is no {name}"
        cause = Cause.REQUEST if is_there else Cause.NOT_FOUND
        return Refusal(Problem(cause=cause, action=Action.GIVE_UP, message=said))

    async def delete(self, name: str) -> str | None:
        """End the job, and take it off the list of jobs."""
        async with judged():
            body = await self._workspace.job_of(name)
            if body is None:
                return None
            await self._end(body)
            return str(body["name"])

    async def _end(self, body: Body) -> bool:
        """One step towards its end. True: it has ended, and is archived."""
        status = body["properties"].get("status")
        if status in ENDED:
            await self._workspace.change_job(body, archived=True)
            return True
        if status != "CancelRequested":
            try:
                await self._workspace.cancel(str(body["name"]))
            except HttpResponseError as error:
                if error.status_code not in (400, 404, 409):  # it has ended a moment ago: the next look tells
                    raise
        return False

    async def poll(self, verb: Verb, name: str, continuation: str, offering: Offering | None = None) -> Progress:
        async with judged():
            body = await self._workspace.job(continuation)
            if body is None or body["properties"].get("isArchived"):
                return Progress(done=True, forgotten=body is None and verb is Verb.CREATE)
            if verb is Verb.DELETE:
                return Progress(done=await self._end(body), look_again_s=self.poll_s)
            return await self._creation(body, offering or responses.offer_of(body["properties"].get("tags") or {}))

    async def _creation(self, body: Body, offering: Offering) -> Progress:
        status, tags = body["properties"].get("status"), dict(body["properties"].get("tags") or {})
        if status in ENDED:
            return Progress(done=True, problem=problem_of(await self._why(str(body["name"]), str(status))))
        label = _LABELS.get(str(status))
        if label is not None and label not in tags:
            await self._workspace.change_job(body, tags={**tags, label: expires_text(time.time())})
        if status == "Running":
            return Progress(done=True)
        if status == PREPARING and responses.since(tags, LABEL_PREPARED, time.time()) > COLD_IMAGE_S:
            said = f"the job {body['name']} had no image within {COLD_IMAGE_S / 60:g} min"
            return Progress(done=True, problem=problem_of(said))
        if status == QUEUED:
            name = str(body["properties"]["computeId"]).rpartition("/")[2]
            problem = responses.cluster_problem(await self._workspace.compute(name), offering)
            if problem is not None:
                return Progress(done=True, problem=problem)
        return Progress(done=False, look_again_s=self.poll_s)

    async def _why(self, job: str, status: str) -> str:
        """Why a job ended, in the last words of its logs."""
        files = await self._workspace.logs(job)
        for log in ("job", "setup"):
            lines = (await self._read(files, log, _WHY_CHARS)).strip().splitlines()
            if lines:
                return f"the job {job} is {status}; its {log} log ends with {one_line(lines[-1])!r}"
        return f"the job {job} is {status}, and has no log"

    # Logs

    async def logs(self, name: str) -> Sequence[str]:
        return log_names(await self._log_files(name))

    async def read_log(self, name: str, log: str, limit: int) -> str:
        return await self._read(await self._log_files(name), log, limit)

    async def _log_files(self, name: str) -> dict[str, str]:
        async with judged():
            body = await self._workspace.job_of(name)
            return {} if body is None else await self._workspace.logs(str(body["name"]))

    # Deadlines

    async def set_deadline(self, name: str, region: str, labels: Mapping[str, str], at: float) -> None:
        self._require_deadline(labels, at)

    async def has_deadline(self, name: str, at: float) -> bool:
        view = await self.view(name)
        return view is not None and is_deadline(view.labels, at)

    async def extend(self, view: MachineView, expires_at: float) -> None:
        async with judged(view.region):
            body = await self._workspace.job_of(view.name)
            if body is not None:
                moved = {LABEL_EXPIRES: expires_text(expires_at + self.skew_s)}
                await self._workspace.change_job(body, tags={**body["properties"]["tags"], **moved})

    # What is around machines

    async def resources(self, pool: str | None = None) -> list[Resource]:
        async with judged():
            jobs = [responses.job_resource(body) for body in await self._workspace.jobs(pool)]
            computes = [body for body in await self._workspace.computes(pool) if _is_cluster(body)]
        return [*jobs, *map(responses.compute_resource, computes)]

    async def delete_resource(self, resource: Resource) -> None:
        async with judged(resource.region):
            await self._workspace.delete_compute(resource.id)

    async def clean_region(self, pool: str, region: str) -> None:
        async with judged(region):
            clusters = [body for body in await self._workspace.computes(pool) if _is_cluster(body)]
            for body in clusters:
                if body["location"] == region:
                    await self._workspace.delete_compute(str(body["id"]))
            if all(body["location"] == region for body in clusters):
                await self._workspace.delete_environments(environment_name(pool))


def cluster_name(spec: MachineSpec) -> str:
    """At most 16 characters, as Azure ML asks; the same for all machines of a pool that can share a cluster."""
    parts = "/".join((spec.owner, spec.pool, responses.offer_text(spec.offering)))
    return f"ef-{hashlib.sha256(parts.encode()).hexdigest()[:12]}"


def environment_name(pool: str) -> str:
    return f"evalfleet-{pool}"


def _is_cluster(body: Body) -> bool:
    return inside(body, "properties", "computeType") == "AmlCompute"
