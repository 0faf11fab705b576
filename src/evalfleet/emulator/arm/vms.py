"""Virtual machines: the requests about them. What they do to the machines is in `machines`."""

from __future__ import annotations

import copy
import uuid
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any

from evalfleet.azure.responses import inside
from evalfleet.azure.sizes import Size
from evalfleet.emulator.arm.network import Network
from evalfleet.emulator.arm.protocol import ArmError, Body, Call, Routes, answer, hang, not_found
from evalfleet.emulator.arm.resources import VM
from evalfleet.emulator.clock import iso
from evalfleet.emulator.context import EmulatorContext
from evalfleet.emulator.machines.machines import Machine, Machines, instance_view

TRUSTED_LAUNCH_SINCE = "2025-11-01"
OUTPUT_AT_MOST = 4096  # of run command, as on Azure


class VirtualMachines:
    """Microsoft.Compute/virtualMachines."""

    def __init__(self, world: EmulatorContext, network: Network) -> None:
        self._world = world
        self.machines = Machines(world, network)

    def routes(self) -> Routes:
        return {
            ("PUT", VM, ""): self._put,
            ("PATCH", VM, ""): self._patch,
            ("GET", VM, ""): self._get,
            ("GET", VM, "instanceview"): self._instance_view,
            ("DELETE", VM, ""): self._delete,
            ("POST", VM, "start"): self._start,
            ("POST", VM, "deallocate"): self._deallocate,
            ("POST", VM, "runcommand"): self._run_command,
            ("POST", VM, "retrievebootdiagnosticsdata"): self._console,
            ("POST", VM, "simulateeviction"): self._simulate_eviction,
        }

    async def end(self, body: Body) -> None:
        await self.machines.end(self.machines.of(body))

    async def switch_off(self, body: Body) -> None:
        await self.machines.switch_off(self.machines.of(body))

    # Making

    async def _put(self, call: Call) -> Any:
        resources = self._world.resources
        resources.open_group(call.target.group)
        body = copy.deepcopy(call.body)
        existing = resources.find(resources.id_of(call.target, VM, call.target.name))
        if existing is not None:
            return self._put_again(call, existing, body)
        _check(body, self._world.skus.known(inside(body, "properties", "hardwareProfile", "vmSize") or ""))
        body["location"] = body["location"].lower()
        attributes = _attributes(call.target.name, body)
        late = await self._world.meet("vm.create", attributes)
        vms = resources.of(VM)
        self._world.quotas.admit(body["location"], attributes["size"], attributes["priority"] == "Spot", vms)
        machine = self._make(call, body)
        self._world.journal.tell("vm.creating", machine.name, **attributes)

        async def work() -> None:
            await self._world.clock.sleep(self._world.times.create)
            await hang(late)
            if late is not None:
                self._fail(machine, late)
                raise late
            await self.machines.switch_on(machine)
            machine.body["properties"]["provisioningState"] = "Succeeded"

        return self._world.operations.accepted(call, body["location"], work, machine.body, 201)

    def _make(self, call: Call, body: Body) -> Machine:
        properties = body["properties"]
        custom_data = inside(properties, "osProfile", "customData")
        if custom_data is not None:
            del properties["osProfile"]["customData"]  # Azure never shows it again
        properties.update(
            vmId=str(uuid.uuid4()), timeCreated=iso(self._world.clock.now()), provisioningState="Creating"
        )
        security = properties.setdefault("securityProfile", {})
        if "securityType" not in security:
            if (
                call.api >= TRUSTED_LAUNCH_SINCE
                and 2 in self._world.skus.find(properties["hardwareProfile"]["vmSize"]).series.generations
            ):
                security |= {
                    "securityType": "TrustedLaunch",
                    "uefiSettings": {"secureBootEnabled": True, "vTpmEnabled": True},
                }
            else:
                properties.pop("securityProfile")
        stored = self._world.resources.put(call.target, VM, call.target.name, body)
        try:
            return self.machines.make(call, stored, custom_data)
        except ArmError:
            self._world.resources.drop(stored["id"])
            raise

    def _put_again(self, call: Call, existing: Body, body: Body) -> Any:
        """A PUT on what is there: nothing but tags may change, and nothing is made twice."""
        if call.headers.get("If-None-Match") == "*":
            raise ArmError(412, "ConditionNotMet", f"The VM {existing['name']} exists already.")
        if body["location"].lower() != existing["location"]:
            said = f"The resource '{existing['name']}' already exists in location '{existing['location']}'."
            raise ArmError(409, "InvalidResourceLocation", said)
        if inside(body, "properties", "osProfile", "customData"):
            said = "Changing property 'osProfile.customData' is not allowed."
            raise ArmError(409, "PropertyChangeNotAllowed", said)
        existing["tags"] = body.get("tags") or {}
        return answer(existing)

    def _fail(self, machine: Machine, error: ArmError) -> None:
        """The record stays, with its interface, address and disk: on Azure it must be deleted explicitly."""
        machine.failure = error
        machine.body["properties"]["provisioningState"] = "Failed"
        self._world.journal.tell("vm.failed", machine.name, code=error.code)

    # Looking

    async def _get(self, call: Call) -> Any:
        if not call.target.name:
            await self._world.meet("vm.list", call.attributes())
            if call.target.group:
                self._world.resources.group(call.target.group)
            found = [body for body in self._world.resources.of(VM, call.target.group) if not self._is_hidden(body)]
            if call.query.get("statusOnly", "").lower() == "true":
                return answer({"value": [self._shown(body, with_state=True) for body in found]})
            return answer({"value": found})
        await self._world.meet("vm.get", call.attributes())
        body = self._seen(call)
        return answer(self._shown(body, with_state="instanceview" in call.query.get("$expand", "").lower()))

    async def _instance_view(self, call: Call) -> Any:
        await self._world.meet("vm.state", call.attributes())
        machine = self.machines.of(self._seen(call))
        return answer(instance_view(machine, self._world.clock.now()))

    def _seen(self, call: Call) -> Body:
        """The VM that a path speaks of, if it can be looked at already."""
        body = self._world.resources.get(call.target)
        if self._is_hidden(body):
            raise not_found("Microsoft.Compute/virtualMachines", call.target.name, call.target.group)
        return body

    def _is_hidden(self, body: Body) -> bool:
        """Whether the VM is so new that it is not found yet."""
        clock, lag_s = self._world.clock, self._world.times.lag
        made_at = datetime.fromisoformat(body["properties"]["timeCreated"]).timestamp()
        return lag_s > 0 and (clock.now() - made_at) * (clock.speed or 1.0) < lag_s

    def _shown(self, body: Body, *, with_state: bool) -> Body:
        if not with_state:
            return body
        state = instance_view(self.machines.of(body), self._world.clock.now())
        return {**body, "properties": {**body["properties"], "instanceView": state}}

    # Changing

    async def _patch(self, call: Call) -> Any:
        await self._world.meet("vm.update", call.attributes())
        body = self._world.resources.get(call.target)
        body["tags"] = call.body.get("tags", body.get("tags"))
        return answer(body)

    async def _start(self, call: Call) -> Any:
        return await self._switch(call, self.machines.switch_on, "running", self._world.times.start)

    async def _deallocate(self, call: Call) -> Any:
        return await self._switch(call, self.machines.switch_off, "deallocated", self._world.times.deallocate)

    async def _switch(
        self, call: Call, switch: Callable[[Machine], Awaitable[None]], power: str, seconds: float
    ) -> Any:
        """Bring a machine to that power, which takes this long unless it is so already."""
        machine = self.machines.of(self._world.resources.get(call.target))
        late = await self._world.meet(f"vm.{call.target.action}", machine.attributes())

        async def work() -> None:
            await self._world.clock.sleep(seconds if machine.power != power else 0)
            await hang(late)
            if late is not None:
                raise late
            await switch(machine)

        return self._world.operations.accepted(call, machine.body["location"], work)

    async def _delete(self, call: Call) -> Any:
        resources = self._world.resources
        body = resources.find(resources.id_of(call.target, VM, call.target.name))
        if body is None:
            resources.group(call.target.group)
            return answer(status=204)
        machine = self.machines.of(body)
        late = await self._world.meet("vm.delete", machine.attributes())
        body["properties"]["provisioningState"] = "Deleting"

        async def work() -> None:
            await self._world.clock.sleep(self._world.times.delete)
            await hang(late)
            if late is not None:
                body["properties"]["provisioningState"] = "Failed"
                raise late
            await self.machines.end(machine)

        return self._world.operations.accepted(call, machine.body["location"], work)

    async def _run_command(self, call: Call) -> Any:
        machine = self.machines.of(self._world.resources.get(call.target))
        late = await self._world.meet("vm.run_command", machine.attributes())
        if machine.power != "running":
            raise ArmError(409, "OperationNotAllowed", "The operation requires the VM to be running (or set to run).")
        script = "\n".join(call.body.get("script") or ())

        async def work() -> Body:
            await hang(late)
            if late is not None:
                raise late
            ran = await machine.host.run(script)
            told = f"Enable succeeded: \n[stdout]\n{ran.stdout[-OUTPUT_AT_MOST:]}\n[stderr]\n{ran.stderr[-OUTPUT_AT_MOST:]}"
            status = {"code": "ProvisioningState/succeeded", "level": "Info", "displayStatus": "Provisioning succeeded"}
            return {"value": [status | {"message": told}]}

        return self._world.operations.accepted(call, machine.body["location"], work)

    async def _console(self, call: Call) -> Any:
        machine = self.machines.of(self._world.resources.get(call.target))
        await self._world.meet("vm.console", machine.attributes())
        return answer({"serialConsoleLogBlobUri": f"{self._world.plain_url}/emulator/vms/{machine.name}/console"})

    async def _simulate_eviction(self, call: Call) -> Any:
        machine = self.machines.of(self._world.resources.get(call.target))
        await self._world.meet("vm.evict", machine.attributes())
        if not machine.spot:
            raise ArmError(400, "BadRequest", "Only Azure Spot virtual machines can be evicted.")
        self.machines.evict(machine)
        return answer(status=204)


def _attributes(name: str, body: Body) -> dict[str, str]:
    properties = body["properties"]
    priority = properties.get("priority", "Regular")
    size = properties["hardwareProfile"]["vmSize"]
    return {"name": name, "location": body["location"], "size": size, "priority": priority}


def _check(body: Body, size: Size | None) -> None:
    """Refuse what Azure refuses at once."""
    if size is None:
        raise ArmError(400, "InvalidParameter", "The value of parameter vmSize is not valid here.")
    if inside(body, "properties", "evictionPolicy") and inside(body, "properties", "priority") != "Spot":
        code = "EvictionPolicyCanBeSetOnlyOnAzureSpotVirtualMachines"
        raise ArmError(409, code, "Eviction policy can be set only on Azure Spot Virtual Machines.")
    sku = str(inside(body, "properties", "storageProfile", "imageReference", "sku") or "")
    generation = 1 if "gen1" in sku else 2
    if sku and generation not in size.series.generations:
        said = f"The selected VM size '{size.name}' cannot boot Hypervisor Generation '{generation}'."
        raise ArmError(400, "BadRequest", said)
    if sku and size.series.arm != ("arm64" in sku):
        said = f"Cannot create a VM of size '{size.name}' because this VM size only supports a CPU Architecture of "
        raise ArmError(400, "BadRequest", said + ("'Arm64'." if size.series.arm else "'x64'."))
