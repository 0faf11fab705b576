"""Computes of a workspace: the requests about clusters and compute instances."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from evalfleet.azure.responses import inside
from evalfleet.emulator.arm.protocol import ArmError, Body, Call, Routes, answer, hang, not_found, require_location
from evalfleet.emulator.arm.resources import ML_COMPUTE, SPELLING
from evalfleet.emulator.clock import iso
from evalfleet.emulator.context import EmulatorContext
from evalfleet.emulator.ml.cluster import Cluster, Waiting, duration_s
from evalfleet.emulator.ml.instance import Instance
from evalfleet.emulator.ml.node import Node
from evalfleet.emulator.ml.quota import MlQuota
from evalfleet.emulator.ml.workspaces import SPACE, Workspaces
from evalfleet.emulator.scenario import Eviction

CLUSTER, INSTANCE = "AmlCompute", "ComputeInstance"
Compute = Cluster | Instance


class Computes:
    """Microsoft.MachineLearningServices/workspaces/computes."""

    def __init__(self, world: EmulatorContext, workspaces: Workspaces, jobs: Waiting, logs: Path) -> None:
        self._world = world
        self._workspaces = workspaces
        self._jobs = jobs
        self._logs = logs
        self._quota = MlQuota(world)
        self._known: dict[str, Compute] = {}  # by id in lower case

    def routes(self) -> Routes:
        return {
            ("PUT", ML_COMPUTE, ""): self._put,
            ("PATCH", ML_COMPUTE, ""): self._patch,
            ("GET", ML_COMPUTE, ""): self._get,
            ("DELETE", ML_COMPUTE, ""): self._delete,
            ("POST", f"{ML_COMPUTE}/listnodes", ""): self._list_nodes,
            ("POST", f"{ML_COMPUTE}/start", ""): self._start,
            ("POST", f"{ML_COMPUTE}/stop", ""): self._stop,
            ("GET", f"{SPACE}/locations", "usages"): self._usages,
        }

    def all(self) -> list[Compute]:
        return list(self._known.values())

    def at(self, compute_id: str) -> Compute | None:
        return self._known.get(compute_id.lower())

    def nodes(self) -> Iterator[tuple[Compute, Node]]:
        for compute in self.all():
            for node in compute.nodes:
                yield compute, node

    def preempt_some(self, eviction: Eviction) -> list[str]:
        """Take so many nodes of low priority back, whose cluster fits the name; which ones is chance."""
        running = [
            (compute, node)
            for compute, node in self.nodes()
            if isinstance(compute, Cluster) and node.spot and fnmatchcase(compute.body["name"], eviction.name)
        ]
        if not running:
            return []
        chosen = self._world.rng.sample(running, eviction.of(len(running)))
        for compute, node in chosen:
            assert isinstance(compute, Cluster)
            self._world.tasks.start_soon(compute.preempt, node)
        return sorted(node.name for _, node in chosen)

    async def _meet(self, op: str, call: Call) -> Any:
        name = call.target.name.rpartition("/")[2]
        self._workspaces.require(call)
        return await self._world.meet(f"ml.compute.{op}", {**call.attributes(), "name": name})

    def _find(self, call: Call) -> Compute:
        found = self.at(self._world.resources.id_of(call.target, ML_COMPUTE, call.target.name))
        if found is None:
            raise not_found(SPELLING[ML_COMPUTE], call.target.name, call.target.group)
        return found

    # Making

    async def _put(self, call: Call) -> Any:
        late = await self._meet("put", call)
        body = copy.deepcopy(call.body)
        known = self.at(self._world.resources.id_of(call.target, ML_COMPUTE, call.target.name))
        if known is not None:
            return self._put_again(known, body)
        _check(body)
        body["location"] = body["location"].lower()
        kind = body["properties"]["computeType"]
        now = iso(self._world.clock.now())
        body["properties"] |= {"provisioningState": "Creating", "createdOn": now, "modifiedOn": now}
        body["properties"] |= {"isAttachedCompute": False, "computeLocation": body["location"]}
        stored = self._world.resources.put(call.target, ML_COMPUTE, call.target.name, body)
        compute = self._made(stored, kind)
        self._known[stored["id"].lower()] = compute
        self._world.journal.tell("compute.creating", stored["name"], compute=kind)

        async def work() -> None:
            times = self._world.times
            await self._world.clock.sleep(times.ml_compute if kind == CLUSTER else times.create)
            await hang(late)
            if late is not None:
                stored["properties"]["provisioningState"] = "Failed"
                raise late
            stored["properties"]["provisioningState"] = "Succeeded"
            if isinstance(compute, Cluster):
                self._world.tasks.start_soon(compute.serve)
            else:
                await compute.start("Create", first=True)
                for moment in _stops(stored):
                    self._world.tasks.start_soon(compute.stop_at, moment, lambda: self.at(stored["id"]) is compute)

        return self._world.operations.accepted(call, stored["location"], work, self._shown(compute), 201)

    def _made(self, stored: Body, kind: str) -> Compute:
        if kind == INSTANCE:
            return Instance(self._world, stored, self._jobs, self._logs / stored["name"])
        stored["properties"]["properties"].setdefault("vmPriority", "Dedicated")
        return Cluster(self._world, stored, self._jobs, self._admit)

    def _put_again(self, known: Compute, body: Body) -> Any:
        require_location(known.body, body["location"])
        asked, has = body["properties"]["properties"], known.body["properties"]["properties"]
        if asked.get("vmSize", "").lower() != has["vmSize"].lower():
            raise ArmError(400, "BadRequest", "Changing the VM size of a compute is not supported.")
        self._scale(known, asked.get("scaleSettings"))
        known.body["tags"] = body.get("tags") or {}
        return answer(self._shown(known))

    async def _patch(self, call: Call) -> Any:
        await self._meet("update", call)
        compute = self._find(call)
        self._scale(compute, inside(call.body, "properties", "properties", "scaleSettings"))
        return answer(self._shown(compute))

    def _scale(self, compute: Compute, settings: Body | None) -> None:
        if settings is not None and isinstance(compute, Cluster):
            duration_s(settings.get("nodeIdleTimeBeforeScaleDown") or "PT120S")
            compute.body["properties"]["properties"]["scaleSettings"] = settings
            compute.wake()

    def _admit(self, region: str, size: str, spot: bool) -> None:
        self._quota.admit(region, size, [node for _, node in self.nodes()], spot=spot)

    async def _usages(self, call: Call) -> Any:
        await self._world.meet("ml.usages", call.attributes())
        return answer({"value": self._quota.usages(call.target.location, [node for _, node in self.nodes()])})

    # Looking

    async def _get(self, call: Call) -> Any:
        workspace, is_one, _ = call.target.name.partition("/")
        await self._meet("get" if is_one else "list", call)
        if is_one:
            return answer(self._shown(self._find(call)))
        prefix = f"/workspaces/{workspace.lower()}/computes/"
        found = [self._shown(each) for key, each in self._known.items() if prefix in key]
        return answer({"value": found})

    def _shown(self, compute: Compute) -> Body:
        return {**compute.body, "properties": {**compute.body["properties"], "properties": compute.shown()}}

    async def _list_nodes(self, call: Call) -> Any:
        await self._meet("nodes", call)
        found = [
            {"nodeId": node.name, "nodeState": node.state, "runId": node.job, "privateIpAddress": "10.0.0.4"}
            for node in self._find(call).nodes
        ]
        return answer({"nodes": found})

    # Changing

    async def _start(self, call: Call) -> Any:
        late = await self._meet("start", call)
        instance = self._instance(call)

        async def work() -> None:
            await self._world.clock.sleep(self._world.times.start)
            await hang(late)
            if late is not None:
                raise late
            if instance.state == "Stopped":
                await instance.start("Start")

        return self._world.operations.accepted(call, instance.body["location"], work)

    async def _stop(self, call: Call) -> Any:
        late = await self._meet("stop", call)
        instance = self._instance(call)

        async def work() -> None:
            await self._world.clock.sleep(self._world.times.deallocate)
            await hang(late)
            if late is not None:
                raise late
            if instance.state != "Stopped":
                await instance.stop()

        return self._world.operations.accepted(call, instance.body["location"], work)

    def _instance(self, call: Call) -> Instance:
        found = self._find(call)
        if not isinstance(found, Instance):
            raise ArmError(400, "BadRequest", "Only compute instances can be started and stopped.")
        return found

    async def _delete(self, call: Call) -> Any:
        late = await self._meet("delete", call)
        if call.query.get("underlyingResourceAction") not in ("Delete", "Detach"):
            raise ArmError(400, "BadRequest", "underlyingResourceAction must be Delete or Detach.")
        compute = self.at(self._world.resources.id_of(call.target, ML_COMPUTE, call.target.name))
        if compute is None:
            return answer(status=204)
        compute.body["properties"]["provisioningState"] = "Deleting"

        async def work() -> None:
            await self._world.clock.sleep(self._world.times.delete)
            await hang(late)
            if late is not None:
                compute.body["properties"]["provisioningState"] = "Failed"
                raise late
            await self.drop(compute)

        return self._world.operations.accepted(call, compute.body["location"], work)

    async def drop(self, compute: Compute) -> None:
        """Delete it, with its nodes; jobs that ran there fail."""
        self._known.pop(compute.body["id"].lower(), None)
        self._world.resources.drop(compute.body["id"])
        jobs = [node.job for node in compute.nodes if node.job]
        await compute.end()
        for job in jobs:
            self._jobs.requeue(job)
        self._world.journal.tell("compute.deleted", compute.body["name"])


def _check(body: Body) -> None:
    """Refuse what Azure refuses at once."""
    kind = inside(body, "properties", "computeType")
    asked: Body = inside(body, "properties", "properties") or {}
    if kind not in (CLUSTER, INSTANCE) or not asked.get("vmSize") or not body.get("location"):
        raise ArmError(400, "BadRequest", "computeType, location and vmSize are needed.")
    if kind == CLUSTER:
        scale: Body = asked.get("scaleSettings") or {}
        if "maxNodeCount" not in scale:
            raise ArmError(400, "BadRequest", "scaleSettings.maxNodeCount is needed.")
        duration_s(scale.get("nodeIdleTimeBeforeScaleDown") or "PT120S")


def _stops(body: Body) -> Iterator[float]:
    """The moments at which its schedules stop it. Of cron only the start is read, which is enough for one that comes once."""
    rows: list[Body] = inside(body["properties"]["properties"], "schedules", "computeStartStop") or []
    for row in rows:
        if row.get("action") == "Stop" and row.get("status", "Enabled") == "Enabled":
            start = datetime.fromisoformat(row["cron"]["startTime"]).replace(tzinfo=UTC)
            yield start.timestamp()
