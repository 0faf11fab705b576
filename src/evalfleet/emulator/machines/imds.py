"""The metadata service inside a VM: instance data and scheduled events.

On Azure it answers at 169.254.169.254. Commands of an emulated VM find its address, which names the VM, in `EVALFLEET_IMDS`.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from aiohttp import web

from evalfleet.emulator.arm.protocol import ArmError
from evalfleet.emulator.context import EmulatorContext
from evalfleet.emulator.machines.machines import Machine, Machines, Notice


class Imds:
    """Instance metadata and scheduled events, by the VM's id."""

    def __init__(self, world: EmulatorContext, machines: Machines) -> None:
        self._world = world
        self._machines = machines

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/imds/{vm}/metadata/instance", self._instance),
            web.get("/imds/{vm}/metadata/scheduledevents", self._events),
            web.post("/imds/{vm}/metadata/scheduledevents", self._approve),
        ]

    def _machine(self, request: web.Request) -> Machine:
        if request.headers.get("Metadata", "").lower() != "true":
            raise ArmError(400, "BadRequest", "Bad request: the header 'Metadata: true' is missing.")
        if "api-version" not in request.query:
            raise ArmError(400, "BadRequest", "Bad request: api-version is missing.")
        return self._machines.named(request.match_info["vm"])

    async def _instance(self, request: web.Request) -> web.Response:
        machine = self._machine(request)
        body, properties = machine.body, machine.body["properties"]
        tags: dict[str, str] = body.get("tags") or {}
        compute = {
            "name": machine.name,
            "location": body["location"],
            "vmId": properties["vmId"],
            "vmSize": machine.size,
            "priority": properties.get("priority", ""),
            "evictionPolicy": properties.get("evictionPolicy", ""),
            "resourceId": body["id"],
            "tagsList": [{"name": name, "value": value} for name, value in tags.items()],
        }
        return web.json_response({"compute": compute})

    async def _events(self, request: web.Request) -> web.Response:
        machine = self._machine(request)
        events = [_event(machine, notice) for notice in machine.notices]
        return web.json_response({"DocumentIncarnation": machine.incarnation, "Events": events})

    async def _approve(self, request: web.Request) -> web.Response:
        machine = self._machine(request)
        body: Any = await request.json()
        wanted = {start["EventId"] for start in body.get("StartRequests", ())}
        for notice in machine.notices:
            if notice.id in wanted:
                notice.approved.set()
        return web.Response()


def _event(machine: Machine, notice: Notice) -> dict[str, Any]:
    due = datetime.fromtimestamp(notice.not_before, UTC).strftime("%a, %d %b %Y %H:%M:%S GMT")
    return {
        "EventId": notice.id,
        "EventType": "Preempt",
        "ResourceType": "VirtualMachine",
        "Resources": [machine.name],
        "EventStatus": "Started" if notice.started else "Scheduled",
        "NotBefore": "" if notice.started else due,
        "Description": "",
        "EventSource": "Platform",
        "DurationInSeconds": -1,
    }
