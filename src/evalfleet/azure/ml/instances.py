"""Compute instances of Azure ML as pools see them: each runs its pilot itself, at its first start. Imports Azure's libraries.

For people who come from WAA's `run_azure.py`, which makes one per worker. Unlike the nodes of a cluster they come with Docker and
without a container around the pilot, and what they cost does not end with their work: Azure stops each at its deadline.
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Mapping, Sequence

from evalfleet.azure.arm import Body, judged
from evalfleet.azure.ml import requests, responses
from evalfleet.azure.ml.base import WorkspaceCloud, is_deadline
from evalfleet.azure.responses import inside
from evalfleet.core.hosts.lifecycle import Power, Stage
from evalfleet.pools.cloud.problems import Action, Cause, Problem, Refusal
from evalfleet.pools.cloud.records import (
    LABEL_EXPIRES,
    Creation,
    MachineSpec,
    MachineView,
    Offering,
    Progress,
    Resource,
    Verb,
    expires_text,
)


class MlInstances(WorkspaceCloud):
    """Implements `Cloud` and `LearnsOfferings`."""

    # Machines

    async def list(self, pool: str | None = None) -> list[MachineView]:
        return [responses.instance_view(body) for body in await self._bodies(pool)]

    async def _bodies(self, pool: str | None = None) -> list[Body]:
        async with judged():
            return [body for body in await self._workspace.computes(pool) if _is_instance(body)]

    async def _body(self, name: str) -> Body | None:
        found = (body for body in await self._bodies() if responses.name_of(body.get("tags") or {}) == name)
        return next(found, None)

    async def view(self, name: str) -> MachineView | None:
        body = await self._body(name)
        return None if body is None else responses.instance_view(body)

    async def create(self, spec: MachineSpec, stops_at: float) -> Creation:
        assert spec.pilot is not None
        if await self._body(spec.name) is not None:
            return Creation(continuation=None)
        name = f"ef-{hashlib.sha256(spec.worker.encode()).hexdigest()[:16]}"
        body = requests.instance_body(
            region=spec.region,
            size=spec.size,
            labels=self._labels(spec, stops_at),
            script=startup_script(spec.pilot.command, spec.pilot.secrets),
            stops_at=stops_at + self.skew_s,
            identity=self._settings.identity,
        )
        async with judged(spec.region, spec.size):
            await self._workspace.put_compute(name, body, waits=False)
        return Creation(continuation=name)

    async def start(self, name: str) -> str:
        raise await self._not_kept(name)

    async def stop(self, name: str) -> str:
        raise await self._not_kept(name)

    async def _not_kept(self, name: str) -> Refusal:
        is_there = await self._body(name) is not None
        said = f"{name} has used its box, and cannot be started again; delete it" if is_there else f"there is no {name}"
        cause = Cause.REQUEST if is_there else Cause.NOT_FOUND
        return Refusal(Problem(cause=cause, action=Action.GIVE_UP, message=said))

    async def delete(self, name: str) -> str | None:
        body = await self._body(name)
        if body is None:
            return None
        async with judged():
            is_going = await self._workspace.begin_delete_compute(str(body["name"]))
        return str(body["name"]) if is_going else None

    async def poll(self, verb: Verb, name: str, continuation: str, offering: Offering | None = None) -> Progress:
        async with judged():
            body = await self._workspace.compute(continuation)
        if body is None:
            return Progress(done=True, forgotten=verb is Verb.CREATE)
        view = responses.instance_view(body)
        if verb is Verb.DELETE:
            failed = view.stage is not Stage.DELETING
            said = f"Azure did not delete {name}: it is {inside(body, 'properties', 'provisioningState')}"
            problem = Problem(cause=Cause.CONFLICT, action=Action.WAIT, message=said)
            return Progress(done=failed, problem=problem if failed else None, look_again_s=self.poll_s)
        if view.stage is Stage.FAILED:
            return Progress(done=True, problem=view.problem)
        return Progress(done=view.stage is Stage.MADE and view.power is Power.RUNNING, look_again_s=self.poll_s)

    # Logs: those of setup scripts lie in the instance's own storage, which the studio shows

    async def logs(self, name: str) -> Sequence[str]:
        return ()

    async def read_log(self, name: str, log: str, limit: int) -> str:
        return ""

    # Deadlines

    async def set_deadline(self, name: str, region: str, labels: Mapping[str, str], at: float) -> None:
        self._require_deadline(labels, at)

    async def has_deadline(self, name: str, at: float) -> bool:
        view = await self.view(name)
        return view is not None and is_deadline(view.labels, at)

    async def extend(self, view: MachineView, expires_at: float) -> None:
        body = await self._body(view.name)
        if body is not None:
            asked = {name: body[name] for name in ("location", "identity") if name in body}
            asked["tags"] = {**body["tags"], LABEL_EXPIRES: expires_text(expires_at + self.skew_s)}
            kept = ("vmSize", "applicationSharingPolicy", "sshSettings", "setupScripts", "schedules")
            properties = {name: body["properties"]["properties"][name] for name in kept}
            asked["properties"] = {"computeType": "ComputeInstance", "properties": properties}
            async with judged(view.region):
                await self._workspace.put_compute(str(body["name"]), asked, waits=False)

    # What is around machines

    async def resources(self, pool: str | None = None) -> list[Resource]:
        return [responses.compute_resource(body) for body in await self._bodies(pool)]

    async def delete_resource(self, resource: Resource) -> None:
        async with judged(resource.region):
            await self._workspace.delete_compute(resource.id)

    async def clean_region(self, pool: str, region: str) -> None:
        pass  # instances share nothing


def startup_script(command: str, secrets: Mapping[str, str]) -> str:
    """Start the pilot beside the instance's own start, which waits for the script to end."""
    exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in secrets.items())
    start = f"nohup sh -c {shlex.quote(command)}"
    return f'#!/bin/sh\n{exports}{start} > "$HOME/evalfleet-pilot.log" 2>&1 < /dev/null &\n'


def _is_instance(body: Body) -> bool:
    return inside(body, "properties", "computeType") == "ComputeInstance"
