"""The emulator's own HTTP interface below /emulator: faults, events, bill, leaks, links. For tests and debugging."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import anyio
import msgspec
from aiohttp import web

from evalfleet.azure.responses import inside
from evalfleet.emulator import scenario
from evalfleet.emulator.arm.protocol import ArmError
from evalfleet.emulator.arm.resources import DISK, IP, NIC, SCHEDULE, SNAPSHOT, SPELLING, VERSION, VM
from evalfleet.emulator.context import EmulatorContext
from evalfleet.emulator.docker.daemon import Dockerd
from evalfleet.emulator.faults import Fault
from evalfleet.emulator.machines import processes
from evalfleet.emulator.machines.condition import Condition
from evalfleet.emulator.machines.machines import Machines
from evalfleet.emulator.scenario import Eviction, Outage
from evalfleet.errors import ConfigError
from evalfleet.pools.cloud.records import expires_of


class Service(Protocol):
    """A service beside VMs whose machines are processes of this one."""

    def evict_some(self, eviction: Eviction) -> list[str]:
        """Take back machines that may be taken back; returns their names."""
        ...

    def left(self) -> Mapping[str, int]:
        """How many things of each type there are that must be gone in the end."""
        ...

    def folders(self) -> Sequence[Path]:
        """Of machines that are on: their processes belong there."""
        ...


class Control:
    """The routes that Azure does not have."""

    def __init__(
        self, world: EmulatorContext, machines: Machines, dockerd: Dockerd, services: Sequence[Service]
    ) -> None:
        self._world = world
        self._machines = machines
        self._dockerd = dockerd
        self._services = services

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/emulator/address", self._address),
            web.get("/emulator/faults", self._faults),
            web.post("/emulator/faults", self._add_fault),
            web.delete("/emulator/faults", self._clear_faults),
            web.get("/emulator/events", self._events),
            web.get("/emulator/traffic", self._traffic),
            web.get("/emulator/bill", self._bill),
            web.get("/emulator/leaks", self._leaks),
            web.post("/emulator/clock", self._advance),
            web.delete("/emulator/operations", self._forget),
            web.post("/emulator/evictions", self._evict_some),
            web.post("/emulator/outages", self._add_outage),
            web.get("/emulator/vms/{vm}/console", self._console),
            web.post("/emulator/vms/{vm}/link", self._link),
            web.post("/emulator/vms/{vm}/condition", self._condition),
            web.post("/emulator/vms/{vm}/guest", self._guest),
            web.post("/emulator/vms/{vm}/containers/{container}/kill", self._kill),
            web.post("/emulator/vms/{vm}/evict", self._evict),
            web.post("/emulator/vms/{vm}/crash", self._crash),
        ]

    async def _address(self, request: web.Request) -> web.Response:
        """Where the request came from, as services on the Internet tell it."""
        return web.Response(text=request.remote or "")

    async def _faults(self, request: web.Request) -> web.Response:
        return web.json_response({"faults": self._world.faults.listed()})

    async def _add_fault(self, request: web.Request) -> web.Response:
        try:
            fault = msgspec.convert(await request.json(), Fault)
            scenario.check(fault, "fault")
        except (msgspec.ValidationError, ConfigError, ValueError) as error:
            raise ArmError(400, "BadRequest", str(error)) from None
        return web.json_response({"number": self._world.faults.add(fault)}, status=201)

    async def _clear_faults(self, request: web.Request) -> web.Response:
        self._world.faults.clear()
        return web.Response(status=204)

    async def _events(self, request: web.Request) -> web.Response:
        """List events; with `wait` (seconds) not before there is one."""
        after, kind = int(request.query.get("after", "0")), request.query.get("type")
        found = self._world.journal.events(after, kind)
        with anyio.move_on_after(float(request.query.get("wait", "0"))):
            found = await self._world.journal.news(after, kind)
        return web.json_response({"events": found})

    async def _traffic(self, request: web.Request) -> web.Response:
        return web.json_response({"exchanges": self._world.journal.exchanges(request.query.get("contains"))})

    async def _bill(self, request: web.Request) -> web.Response:
        return web.json_response(self._world.bill.as_json(request.query.get("pool")))

    async def _advance(self, request: web.Request) -> web.Response:
        body: Any = await request.json()
        self._world.clock.advance(float(body["seconds"]))
        return web.json_response({"now": self._world.clock.now()})

    async def _forget(self, request: web.Request) -> web.Response:
        self._world.operations.forget()
        return web.Response(status=204)

    async def _link(self, request: web.Request) -> web.Response:
        """Cut or slow a VM's network: {"blocked": true} or {"latency_s": 5}; {} makes it whole."""
        machine = self._machines.named(request.match_info["vm"])
        body: Any = await request.json()
        blocked, latency_s = bool(body.get("blocked", False)), float(body.get("latency_s", 0.0))
        await self._machines.set_link(machine, blocked=blocked, latency_s=latency_s)
        return web.Response(status=204)

    async def _evict(self, request: web.Request) -> web.Response:
        body: Any = await request.json() if request.can_read_body else {}
        self._machines.evict(self._machines.named(request.match_info["vm"]), silent=bool(body.get("silent", False)))
        return web.Response(status=204)

    async def _evict_some(self, request: web.Request) -> web.Response:
        """Evict several spot machines at once: {"share": 0.3}, {"count": 2}, with "name" and "silent"."""
        try:
            eviction = msgspec.convert(await request.json(), Eviction)
            scenario.check_eviction(eviction, "evictions")
        except (msgspec.ValidationError, ConfigError, ValueError) as error:
            raise ArmError(400, "BadRequest", str(error)) from None
        return web.json_response({"evicted": self.evict_some(eviction)})

    def evict_some(self, eviction: Eviction) -> list[str]:
        """Take spot VMs back, or where none runs nodes of other services; returns their names."""
        found = self._machines.evict_some(eviction)
        for service in self._services:
            found = found or service.evict_some(eviction)
        return found

    async def _add_outage(self, request: web.Request) -> web.Response:
        """Let a service refuse every call: {"service": "batch", "lasts": 600}."""
        try:
            self._world.add_outage(msgspec.convert(await request.json(), Outage))
        except (msgspec.ValidationError, ValueError) as error:
            raise ArmError(400, "BadRequest", str(error)) from None
        return web.Response(status=204)

    async def _condition(self, request: web.Request) -> web.Response:
        """Change how a machine is inside, while it runs: {"kvm": false}, {"disk_used_gb": 128}; without a body, tell it."""
        machine = self._machines.named(request.match_info["vm"])
        changes: Any = await request.json() if request.can_read_body else {}
        try:
            machine.condition = msgspec.convert({**msgspec.to_builtins(machine.condition), **changes}, Condition)
        except msgspec.ValidationError as error:
            raise ArmError(400, "BadRequest", str(error)) from None
        await self._machines.show(machine)
        if "latency_s" in changes:
            await self._machines.set_link(machine, blocked=False, latency_s=machine.condition.latency_s)
        return web.json_response(msgspec.to_builtins(machine.condition))

    async def _console(self, request: web.Request) -> web.Response:
        """What the machine wrote to its serial console."""
        machine = self._machines.named(request.match_info["vm"])
        lines = ["Linux version 6.8.0-azure", "cloud-init: finished", f"{machine.name} login: "]
        return web.Response(text="\n".join(lines) if machine.boots else "")

    async def _guest(self, request: web.Request) -> web.Response:
        """Let Windows fall silent on a machine, or answer again: {"silent": true}."""
        machine = self._machines.named(request.match_info["vm"])
        body: Any = await request.json()
        machine.silent = bool(body["silent"])
        return web.Response(status=204)

    async def _kill(self, request: web.Request) -> web.Response:
        await self._dockerd.kill(request.match_info["vm"], request.match_info["container"])
        return web.Response(status=204)

    async def _crash(self, request: web.Request) -> web.Response:
        """Lose power for a moment: every process and connection dies, and the VM is back at once."""
        machine = self._machines.named(request.match_info["vm"])
        async with machine.lock:
            await machine.host.halt()
            await self._machines.boot(machine)
        self._world.journal.tell("vm.crashed", machine.name)
        return web.Response(status=204)

    async def _leaks(self, request: web.Request) -> web.Response:
        leaks = [*self._orphans(), *self._overdue(), *await asyncio.to_thread(self._strays)]
        counts = {SPELLING[kind]: len(self._world.resources.of(kind)) for kind in SPELLING}
        left = {kind: count for kind, count in counts.items() if count}
        for service in self._services:
            left |= service.left()
        kept = [body["id"] for body in self._world.resources.of(VERSION) if _provisioning(body) == "Succeeded"]
        return web.json_response({"leaks": leaks, "resources": left} | ({"kept": kept} if kept else {}))

    def _orphans(self) -> list[dict[str, str]]:
        """What costs money or clutters, and belongs to no VM."""
        vms = {body["id"].lower() for body in self._world.resources.of(VM)}
        owners = {
            DISK: ("managedBy",),
            NIC: ("properties", "virtualMachine", "id"),
            SCHEDULE: ("properties", "targetResourceId"),
        }
        found = [
            _leak(body, "belongs to no VM")
            for kind, owner in owners.items()
            for body in self._world.resources.of(kind)
            if str(inside(body, *owner)).lower() not in vms
        ]
        making = str([body for body in self._world.resources.of(VERSION) if _provisioning(body) == "Creating"]).lower()
        found += [
            _leak(body, "belongs to no image that is being created")
            for body in self._world.resources.of(SNAPSHOT)
            if body["id"].lower() not in making and _provisioning(body) != "Creating"
        ]
        used = str(self._world.resources.of(NIC)).lower()
        return found + [
            _leak(body, "belongs to no VM") for body in self._world.resources.of(IP) if body["id"].lower() not in used
        ]

    def _overdue(self) -> list[dict[str, str]]:
        now = self._world.clock.now()
        found: list[dict[str, str]] = []
        for body in self._world.resources.of(VM):
            expires = expires_of(body.get("tags") or {})
            if body["properties"]["provisioningState"] == "Failed":
                found.append(_leak(body, "failed, and was not deleted"))
            elif expires is None:
                found.append(_leak(body, "has no deadline"))
            elif expires < now:
                found.append(_leak(body, "is past its deadline"))
        failed = [body for body in self._world.resources.of(VERSION) if _provisioning(body) == "Failed"]
        return found + [_leak(body, "failed, and was not deleted") for body in failed]

    def _strays(self) -> list[dict[str, str]]:
        """Processes of machines that are off or gone."""
        folder = self._world.folder
        on = [
            folder / "vms" / each.body["properties"]["vmId"] for each in self._machines.all() if each.power == "running"
        ]
        on.append(folder / "storage")  # blob storage is a program of its own
        for service in self._services:
            on += service.folders()
        strays = processes.belonging(folder)
        for each in on:
            strays -= processes.belonging(each)
        strays &= processes.belonging(folder)  # a process of a running machine may have ended between the looks
        return [{"id": str(pid), "type": "process", "why": "runs on a machine that is off"} for pid in strays]


def _provisioning(body: dict[str, Any]) -> str:
    return body["properties"]["provisioningState"]


def _leak(body: dict[str, Any], why: str) -> dict[str, str]:
    return {"id": body["id"], "type": body["type"], "why": why}
