"""Azure Machine Learning: its parts put together, its logs, and what a test can do to it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from aiohttp import web

from evalfleet.emulator.arm.protocol import ArmError, Routes, parse
from evalfleet.emulator.arm.resources import ML_JOB, SPELLING
from evalfleet.emulator.context import EmulatorContext
from evalfleet.emulator.machines import processes
from evalfleet.emulator.ml.cluster import Cluster
from evalfleet.emulator.ml.computes import Computes
from evalfleet.emulator.ml.container import JobContainer
from evalfleet.emulator.ml.instance import Instance
from evalfleet.emulator.ml.jobs import ENDED, Jobs
from evalfleet.emulator.ml.workspaces import Workspaces
from evalfleet.emulator.scenario import Eviction


class MachineLearning:
    """Microsoft.MachineLearningServices."""

    def __init__(self, world: EmulatorContext) -> None:
        self._world = world
        logs = world.folder / "ml-logs"
        self._logs = logs
        self._container = JobContainer(world)
        self._workspaces = Workspaces(world)
        self.jobs = Jobs(world, self._workspaces, self._container, self._compute_at, logs)
        self.computes = Computes(world, self._workspaces, self.jobs, logs)

    def _compute_at(self, compute_id: str) -> Cluster | Instance | None:
        return self.computes.at(compute_id)

    def routes(self) -> Routes:
        return {**self._workspaces.routes(), **self.computes.routes(), **self.jobs.routes()}

    def web_routes(self) -> list[web.RouteDef]:
        """What is not of Resource Manager: the history of runs, which has their logs; and the emulator's own."""
        return [
            web.get("/history/v1.0/{tail:.*}", self._details),
            web.get("/emulator/ml/logs/{name}/{path:.*}", self._log),
            web.get("/emulator/ml", self._state),
            web.post("/emulator/ml/silence", self._silence),
            web.post("/emulator/ml/nodes/{node}/preempt", self._preempt),
        ]

    async def _details(self, request: web.Request) -> web.Response:
        target = parse(f"/{request.match_info['tail']}")
        if target is None or not target.kind.endswith("/runs/details"):
            raise ArmError(404, "NotFound", f"The path {request.path} is not emulated.")
        self._world.require_service("ml")
        await self._world.meet("ml.history", {"name": target.name.rpartition("/")[2]})
        job = self.jobs.named(target.name.rpartition("/")[2])
        names = [str(path.relative_to(job.logs)) for path in sorted(job.logs.rglob("*.*"))] if job.logs.exists() else []
        urls = {name: f"{self._world.plain_url}/emulator/ml/logs/{job.name}/{name}" for name in names}
        return web.json_response({"runId": job.name, "status": job.status, "logFiles": urls})

    async def _log(self, request: web.Request) -> web.Response:
        path = (self._logs / request.match_info["name"] / request.match_info["path"]).resolve()
        if not path.is_relative_to(self._logs.resolve()) or not path.is_file():
            raise ArmError(404, "BlobNotFound", "The specified blob does not exist.")
        return web.Response(text=path.read_text("utf-8", errors="replace"))

    async def _state(self, request: web.Request) -> web.Response:
        nodes = [
            {"name": node.name, "compute": compute.body["name"], "state": node.state, "job": node.job}
            for compute, node in self.computes.nodes()
        ]
        jobs = [{"name": job.name, "status": job.status, "node": job.node and job.node.name} for job in self.jobs.all()]
        return web.json_response({"nodes": nodes, "jobs": jobs})

    async def _silence(self, request: web.Request) -> web.Response:
        """Let nodes fall silent whose cluster fits, and with them all containers that start: {"silent": true, "name": "*"}."""
        body: Any = await request.json()
        silent = bool(body["silent"])
        self._container.silence(silent=silent)
        for compute, node in [*self.computes.nodes()]:
            if fnmatchcase(compute.body["name"], body.get("name", "*")):
                await node.freeze(frozen=silent)
        self._world.journal.tell("ml.silenced" if silent else "ml.heard")
        return web.Response(status=204)

    async def _preempt(self, request: web.Request) -> web.Response:
        for compute, node in self.computes.nodes():
            if node.name == request.match_info["node"] and isinstance(compute, Cluster):
                await compute.preempt(node)
                return web.Response(status=204)
        raise ArmError(404, "ResourceNotFound", "There is no such node of a cluster.")

    # What a service of the emulator must say

    def evict_some(self, eviction: Eviction) -> list[str]:
        return self.computes.preempt_some(eviction)

    def left(self) -> Mapping[str, int]:
        """Jobs that have not ended, or that a list of jobs still shows; all else is counted with the resources."""
        live = [job for job in self.jobs.all() if job.status not in ENDED or not job.properties.get("isArchived")]
        return {SPELLING[ML_JOB]: len(live)} if live else {}

    def folders(self) -> list[Path]:
        return [node.folder for _, node in self.computes.nodes()]

    async def close(self) -> None:
        """End every node, with the emulator."""
        await asyncio.to_thread(processes.end_all, self._world.folder / "ml")
        for compute in self.computes.all():
            await compute.end()
