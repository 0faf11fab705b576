"""The machines behind the VMs: what is on, what is off, what is being taken away."""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import dataclass, field

import anyio

from evalfleet.azure.prices import disk_usd_per_hour
from evalfleet.azure.views import inside
from evalfleet.emulator.bill import vm_usd_per_hour
from evalfleet.emulator.clock import iso
from evalfleet.emulator.hosts import Host, HostSpec, read_user_data
from evalfleet.emulator.network import Network
from evalfleet.emulator.resources import DISK
from evalfleet.emulator.wire import ArmError, Body, Call
from evalfleet.emulator.world import World


@dataclass(slots=True)
class Notice:
    """A scheduled event of IMDS: this machine is going to be taken away."""

    id: str
    not_before: float
    approved: asyncio.Event = field(default_factory=asyncio.Event)
    started: bool = False


@dataclass(slots=True)
class Machine:
    """One VM's hardware. `power` is Azure's word for its state."""

    body: Body
    host: Host
    address: str
    power: str = ""
    failure: ArmError | None = None
    gone: bool = False
    incarnation: int = 1  # of the document of scheduled events
    notices: list[Notice] = field(default_factory=list[Notice])
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)  # one change at a time

    @property
    def name(self) -> str:
        return self.body["name"]

    @property
    def spot(self) -> bool:
        return self.body["properties"].get("priority") == "Spot"

    @property
    def size(self) -> str:
        return self.body["properties"]["hardwareProfile"]["vmSize"]

    def attributes(self) -> dict[str, str]:
        """What faults can be matched with."""
        location, priority = self.body["location"], "Spot" if self.spot else "Regular"
        return {"name": self.name, "location": location, "size": self.size, "priority": priority}


class Machines:
    """All machines, by the ids of their VMs."""

    def __init__(self, world: World, network: Network) -> None:
        self._world = world
        self._network = network
        self._known: dict[str, Machine] = {}

    def of(self, body: Body) -> Machine:
        return self._known[body["id"].lower()]

    def named(self, name: str) -> Machine:
        """Return the machine of that name or id, in whichever group."""
        for machine in self._known.values():
            if name in (machine.name, machine.body["properties"]["vmId"]):
                return machine
        raise ArmError(404, "ResourceNotFound", f"There is no machine {name}.")

    def at(self, address: str) -> Machine:
        """Return the machine of that address."""
        for machine in self._known.values():
            if machine.address == address:
                return machine
        raise ArmError(404, "ResourceNotFound", f"There is no machine at {address}.")

    def all(self) -> list[Machine]:
        return list(self._known.values())

    def make(self, call: Call, body: Body, custom_data: str | None) -> Machine:
        """Make the machine of a VM that was just stored, with its interface, address and disk. It is off."""
        properties = body["properties"]
        configs = properties["networkProfile"].pop("networkInterfaceConfigurations", None) or ()
        properties["networkProfile"].pop("networkApiVersion", None)
        if configs:
            made = [self._network.attach(call, body["id"], config, body["location"]) for config in configs]
            properties["networkProfile"]["networkInterfaces"] = made
        self._make_disk(call, body)
        spec = self._host_spec(body, custom_data)
        machine = Machine(body, self._world.make_host(spec), spec.address)
        self._known[body["id"].lower()] = machine
        return machine

    def _make_disk(self, call: Call, body: Body) -> None:
        disk = body["properties"]["storageProfile"]["osDisk"]
        disk.setdefault("name", f"{body['name']}_OsDisk_1")
        disk.setdefault("diskSizeGB", 30)
        kind = disk.setdefault("managedDisk", {}).setdefault("storageAccountType", "Premium_LRS")
        stored = self._world.resources.put(
            call.target,
            DISK,
            disk["name"],
            {
                "location": body["location"],
                "tags": dict(body.get("tags") or {}),
                "managedBy": body["id"],
                "sku": {"name": kind},
                "properties": {
                    "diskSizeGB": disk["diskSizeGB"],
                    "diskState": "Attached",
                    "provisioningState": "Succeeded",
                },
            },
        )
        disk["managedDisk"]["id"] = stored["id"]
        self._world.bill.begin(stored["id"], "disk", disk["name"], disk_usd_per_hour(kind, disk["diskSizeGB"]))

    def _host_spec(self, body: Body, custom_data: str | None) -> HostSpec:
        properties = body["properties"]
        keys = inside(properties, "osProfile", "linuxConfiguration", "ssh", "publicKeys") or ()
        interfaces = properties["networkProfile"].get("networkInterfaces") or ()
        address = self._network.public_address(interfaces[0]) if interfaces else None
        return HostSpec(
            name=body["name"],
            folder=self._world.folder / "vms" / properties["vmId"],
            address=address or self._world.addresses.take(),
            port=self._world.addresses.port,
            user=inside(properties, "osProfile", "adminUsername") or "azureuser",
            login_keys=tuple(key["keyData"] for key in keys),
            host_key=inside(read_user_data(custom_data), "ssh_keys", "ed25519_private"),
            imds_url=f"{self._world.base_url}/imds/{properties['vmId']}",
        )

    async def switch_on(self, machine: Machine) -> None:
        async with machine.lock:
            if machine.gone:
                raise ArmError(409, "OperationPreempted", f"{machine.name} was deleted meanwhile.")
            if machine.power == "running":
                return
            fault = self._world.fault_of("host.boot", machine.attributes())
            await machine.host.boot(fault)
            machine.power = "running"
            usd = vm_usd_per_hour(machine.size, machine.body["location"], spot=machine.spot)
            self._world.bill.begin(machine.body["id"], "vm", machine.name, usd)
            self._world.journal.tell("vm.running", machine.name)

    async def switch_off(self, machine: Machine) -> None:
        """Deallocate at once: the machine is gone, its disk and address stay."""
        async with machine.lock:
            if machine.gone or machine.power == "deallocated":
                return
            await machine.host.halt()
            machine.power = "deallocated"
            machine.notices.clear()
            self._world.bill.pause(machine.body["id"])
            self._world.journal.tell("vm.deallocated", machine.name)

    async def end(self, machine: Machine) -> None:
        """Delete the VM, and what its options say goes with it."""
        async with machine.lock:
            if machine.gone:
                return
            machine.gone = True
            await machine.host.remove()
            properties = machine.body["properties"]
            self._world.bill.end(machine.body["id"])
            self._known.pop(machine.body["id"].lower(), None)
            self._world.resources.drop(machine.body["id"])
            disk = properties["storageProfile"]["osDisk"]
            if disk.get("deleteOption") == "Delete":
                self._world.bill.end(disk["managedDisk"]["id"])
                self._world.resources.drop(disk["managedDisk"]["id"])
            elif (left := self._world.resources.find(disk["managedDisk"]["id"])) is not None:
                left.pop("managedBy", None)
                left["properties"]["diskState"] = "Unattached"
            for reference in properties["networkProfile"].get("networkInterfaces") or ():
                self._network.detach(reference)
            self._world.journal.tell("vm.deleted", machine.name)

    def evict(self, machine: Machine) -> None:
        """Give a spot machine notice, and take it away when that is over or agreed to."""
        notice = Notice(str(uuid.uuid4()).upper(), self._world.clock.now() + 30)
        machine.notices.append(notice)
        machine.incarnation += 1
        self._world.journal.tell("vm.preempting", machine.name, event=notice.id)
        self._world.tasks.start_soon(self._take_away, machine, notice)

    async def _take_away(self, machine: Machine, notice: Notice) -> None:
        with anyio.move_on_after(self._world.clock.real(self._world.times.notice)):
            await notice.approved.wait()
        notice.started = True
        self._world.journal.tell("vm.evicted", machine.name)
        if machine.body["properties"].get("evictionPolicy") == "Delete":
            await self.end(machine)
        else:
            await self.switch_off(machine)

    async def close(self) -> None:
        """End every host, with the emulator."""
        for machine in self.all():
            await machine.host.remove()


def instance_view(machine: Machine, now: float) -> Body:
    """Return the run-time state as Azure words it."""
    properties = machine.body["properties"]
    state = properties["provisioningState"].lower()
    first: Body = {"code": f"ProvisioningState/{state}", "level": "Info", "displayStatus": f"Provisioning {state}"}
    first["time"] = iso(now)
    if machine.failure is not None:
        first |= {"code": f"ProvisioningState/failed/{machine.failure.code}", "level": "Error"}
        first["message"] = machine.failure.message
    statuses = [first]
    if machine.power:
        shown = f"VM {machine.power}"
        statuses.append({"code": f"PowerState/{machine.power}", "level": "Info", "displayStatus": shown})
    return {"computerName": machine.name, "hyperVGeneration": "V2", "statuses": statuses}
