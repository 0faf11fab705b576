"""Command jobs: they wait for a node of their compute, and run there as real processes until they end or are cancelled."""

from __future__ import annotations

import copy
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import anyio
from msgspec import Struct

from evalfleet.azure.responses import inside
from evalfleet.emulator.arm.protocol import ArmError, Body, Call, Routes, answer, not_found
from evalfleet.emulator.arm.resources import ML_JOB, SPELLING
from evalfleet.emulator.context import EmulatorContext
from evalfleet.emulator.ml.cluster import Cluster, duration_s
from evalfleet.emulator.ml.container import ContainerFailed, JobContainer
from evalfleet.emulator.ml.instance import Instance
from evalfleet.emulator.ml.node import Node
from evalfleet.emulator.ml.workspaces import Workspaces

ENDED = ("Completed", "Failed", "Canceled")
STD_LOG = "user_logs/std_log.txt"
SETUP_LOG = "system_logs/lifecycler/lifecycler.log"


class Job(Struct):
    """One job. `status` is Azure's word."""

    body: Body
    logs: Path
    status: str = "NotStarted"
    node: Node | None = None
    scope: anyio.CancelScope | None = None  # of its present run on a node
    requeued: bool = False  # its node went away under it
    timeouts: int = 0  # number of its present run

    @property
    def name(self) -> str:
        return self.body["name"]

    @property
    def properties(self) -> Body:
        return self.body["properties"]

    @property
    def compute(self) -> str:
        return self.properties["computeId"].lower()

    def shown(self) -> Body:
        return {**self.body, "properties": {**self.properties, "status": self.status}}

    def tell(self, line: str) -> None:
        """Write a line of the log that Azure itself writes about the job."""
        path = self.logs / SETUP_LOG
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as log:
            log.write(line + "\n")


class Jobs:
    """Microsoft.MachineLearningServices/workspaces/jobs. Implements `Waiting`."""

    def __init__(
        self,
        world: EmulatorContext,
        workspaces: Workspaces,
        container: JobContainer,
        compute_at: Callable[[str], Cluster | Instance | None],
        logs: Path,
    ) -> None:
        self._world = world
        self._workspaces = workspaces
        self._container = container
        self._compute_at = compute_at
        self._logs = logs
        self._known: dict[str, Job] = {}  # by id in lower case

    def routes(self) -> Routes:
        return {
            ("PUT", ML_JOB, ""): self._put,
            ("GET", ML_JOB, ""): self._get,
            ("POST", f"{ML_JOB}/cancel", ""): self._cancel,
        }

    def all(self) -> list[Job]:
        return list(self._known.values())

    def named(self, name: str) -> Job:
        for job in self._known.values():
            if job.name == name:
                return job
        raise ArmError(404, "ResourceNotFound", f"There is no job {name}.")

    async def _meet(self, op: str, call: Call) -> None:
        self._workspaces.require(call)
        name = call.target.name.rpartition("/")[2]
        await self._world.meet(f"ml.job.{op}", {**call.attributes(), "name": name})

    def _find(self, call: Call) -> Job:
        job = self._known.get(self._world.resources.id_of(call.target, ML_JOB, call.target.name).lower())
        if job is None:
            raise not_found(SPELLING[ML_JOB], call.target.name, call.target.group)
        return job

    # Requests

    async def _put(self, call: Call) -> Any:
        await self._meet("put", call)
        body = copy.deepcopy(call.body)
        job_id = self._world.resources.id_of(call.target, ML_JOB, call.target.name)
        known = self._known.get(job_id.lower())
        if known is not None:
            return self._put_again(known, body)
        self._check(body["properties"])
        name = call.target.name.rpartition("/")[2]
        body["properties"].setdefault("experimentName", "Default")
        stored = {"id": job_id, "name": name, "type": SPELLING[ML_JOB], **body}
        job = self._known[job_id.lower()] = Job(stored, self._logs / name)
        self._world.journal.tell("job.submitted", name)
        self._world.tasks.start_soon(self._queue, job)
        return answer(job.shown(), 201)

    def _put_again(self, job: Job, body: Body) -> Any:
        """A PUT on what is there changes its tags and whether it is archived, and nothing else."""
        if body["properties"].get("command") != job.properties["command"]:
            raise ArmError(409, "UserError", f"A job with the name {job.name} exists already, and cannot be changed.")
        if body["properties"].get("isArchived") and job.status not in ENDED:
            raise ArmError(
                400, "UserError", f"The job {job.name} is {job.status}; only one that has ended is archived."
            )
        job.properties["tags"] = body["properties"].get("tags") or {}
        job.properties["isArchived"] = bool(body["properties"].get("isArchived"))
        return answer(job.shown())

    def _check(self, properties: Body) -> None:
        if properties.get("jobType") != "Command":
            raise ArmError(400, "UserError", "Only command jobs are emulated.")
        self._workspaces.environment(properties["environmentId"])
        compute = self._compute_at(properties.get("computeId") or "")
        if compute is None or compute.body["properties"]["provisioningState"] != "Succeeded":
            raise ArmError(400, "UserError", "The compute target of the job was not found, or is not ready.")
        if timeout := inside(properties, "limits", "timeout"):
            duration_s(timeout)

    async def _get(self, call: Call) -> Any:
        workspace, is_one, _ = call.target.name.partition("/")
        await self._meet("get" if is_one else "list", call)
        if is_one:
            return answer(self._find(call).shown())
        view, tag = call.query.get("listViewType", "ActiveOnly"), call.query.get("tag", "")
        label, has_value, value = tag.partition("=")
        prefix = f"/workspaces/{workspace.lower()}/jobs/"
        found: list[Body] = []
        for key, job in self._known.items():
            archived = bool(job.properties.get("isArchived"))
            tags: dict[str, str] = job.properties.get("tags") or {}
            is_wanted = not label or (label in tags and (not has_value or tags[label] == value))
            if prefix in key and is_wanted and (view == "All" or archived == (view == "ArchivedOnly")):
                found.append(job.shown())
        return answer({"value": found})

    async def _cancel(self, call: Call) -> Any:
        await self._meet("cancel", call)
        job = self._find(call)

        async def work() -> None:
            await self.cancel(job)

        region = self._world.resources.group(call.target.group)["location"]
        if job.status in ENDED:
            return answer(status=200)
        job.status = "CancelRequested"
        return self._world.operations.accepted(call, region, work)

    # Running

    async def _queue(self, job: Job) -> None:
        job.status = "Starting"
        await self._world.clock.sleep(self._world.times.ml_job)
        if job.status != "Starting":
            return  # cancelled meanwhile
        self._wait(job)

    def _wait(self, job: Job) -> None:
        job.status = "Queued"
        job.tell(f"waiting for a node of {job.compute.rpartition('/')[2]}")
        compute = self._compute_at(job.compute)
        if compute is None:
            self._end(job, "Failed", "the compute target was deleted")
        else:
            compute.wake()

    def waiting(self, compute: str) -> Sequence[str]:
        ending = f"/computes/{compute.lower()}"
        return [job.name for job in self._known.values() if job.status == "Queued" and job.compute.endswith(ending)]

    def begin(self, job: str, node: Node) -> None:
        found = self.named(job)
        found.status, found.node, found.scope, found.requeued = "Preparing", node, anyio.CancelScope(), False
        self._world.tasks.start_soon(self._run, found, node, found.scope)

    def requeue(self, job: str) -> None:
        found = self.named(job)
        if found.scope is not None and found.status not in ENDED:
            found.requeued = True
            found.scope.cancel()

    async def _run(self, job: Job, node: Node, scope: anyio.CancelScope) -> None:
        """Run it once, from the pull of its image to the end of its process; then free the node, if that is still there."""
        status, why = "Failed", ""
        with scope:
            try:
                status, why = await self._contained(job, node)
            except ContainerFailed as error:
                status, why = "Failed", str(error)
        with anyio.CancelScope(shield=True):
            if node.state != "leaving":
                await node.end_processes()
            job.node = job.scope = None
            compute = self._compute_at(job.compute)
            if job.requeued:
                self._wait(job)
            else:
                self._end(job, "Canceled" if scope.cancelled_caught else status, why)
            if compute is not None:
                compute.released(node)

    async def _contained(self, job: Job, node: Node) -> tuple[str, str]:
        image = self._workspaces.environment(job.properties["environmentId"])["properties"]["image"]
        resources: Body = job.properties.get("resources") or {}
        words = shlex.split(resources.get("dockerArgs") or "")
        compute = self._compute_at(job.compute)
        identity = inside(compute.body if compute else {}, "identity", "type") or ""
        await self._container.pull(node, image, has_identity="Assigned" in identity, tell=job.tell)
        job.status = "Running"
        job.tell(f"starting the container of {image}")
        self._world.journal.tell("job.running", job.name, node=node.name)
        job.timeouts += 1
        if timeout := inside(job.properties, "limits", "timeout"):
            self._world.tasks.start_soon(self._limit, job, duration_s(timeout), job.timeouts)
        given: dict[str, str] = job.properties.get("environmentVariables") or {}
        environ = {"AZUREML_RUN_ID": job.name, **given}
        log = job.logs / STD_LOG
        log.parent.mkdir(parents=True, exist_ok=True)
        code = await self._container.run(node, image, words, job.properties["command"], environ, log)
        return ("Completed", "") if code == 0 else ("Failed", f"the command ended with exit code {code}")

    async def _limit(self, job: Job, seconds: float, number: int) -> None:
        """End it at its limit, by the time of day, as a deadline is meant."""
        await self._world.clock.until(self._world.clock.now() + seconds)
        if job.timeouts == number and job.status == "Running":
            job.tell("the job exceeded its timeout, and is cancelled")
            await self.cancel(job)

    async def cancel(self, job: Job) -> None:
        if job.scope is not None:
            job.scope.cancel()
        elif job.status not in ENDED:
            self._end(job, "Canceled", "")

    def _end(self, job: Job, status: str, why: str) -> None:
        job.status = status
        if why:
            job.tell(why)
        self._world.journal.tell("job.ended", job.name, status=status, why=why)
