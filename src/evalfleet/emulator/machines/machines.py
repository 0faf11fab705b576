"""The machines behind the VMs: their power states and evictions."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from fnmatch import fnmatchcase
from pathlib import Path

import anyio
from msgspec import Struct, field

from evalfleet.azure.prices import disk_usd_per_hour
from evalfleet.azure.responses import inside
from evalfleet.emulator.arm.network import Network
from evalfleet.emulator.arm.protocol import ArmError, Body, Call
from evalfleet.emulator.arm.resources import DISK
from evalfleet.emulator.clock import iso
from evalfleet.emulator.context import EmulatorContext
from evalfleet.emulator.docker import state as containers
from evalfleet.emulator.machines import processes
from evalfleet.emulator.machines.condition import Condition, apply
from evalfleet.emulator.machines.host import Host, HostSpec, read_user_data
from evalfleet.emulator.presets import BOOT
from evalfleet.emulator.scenario import Eviction, LinkChange


class Notice(Struct):
    """A scheduled event of IMDS: this machine will be evicted."""

    id: str
    not_before: float
    approved: asyncio.Event = field(default_factory=asyncio.Event)
    started: bool = False


class Machine(Struct):
    """One VM's hardware. `power` is Azure's word for its state."""

    body: Body
    host: Host
    address: str
    power: str = ""
    failure: ArmError | None = None
    gone: bool = False
    condition: Condition = field(default_factory=Condition)
    boots: int = 0  # how often it was switched on
    shut: bool = False  # its security group lets no SSH in
    silent: bool = False  # its guest does not answer
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

    def __init__(self, world: EmulatorContext, network: Network) -> None:
        self._world = world
        self._network = network
        self._known: dict[str, Machine] = {}
        self.images: Callable[[str, str, str], tuple[Body, Path]] | None = (
            None  # what a VM can begin with; set by the app
        )

    def of(self, body: Body) -> Machine:
        return self._known[body["id"].lower()]

    def named(self, name: str) -> Machine:
        """Return the machine of that name or id, in whichever group."""
        for machine in self._known.values():
            if name in (machine.name, machine.body["properties"]["vmId"]):
                return machine
        raise ArmError(404, "ResourceNotFound", f"There is no machine {name}.")

    def at(self, address: str) -> Machine:
        for machine in self._known.values():
            if machine.address == address:
                return machine
        raise ArmError(404, "ResourceNotFound", f"There is no machine at {address}.")

    def all(self) -> list[Machine]:
        return list(self._known.values())

    def make(self, call: Call, body: Body, custom_data: str | None) -> Machine:
        """Make the machine of a VM that was just stored, with its interface, address and disk. It is off."""
        properties = body["properties"]
        image = self._image(body)  # before anything is made, because it may be refused
        configs = properties["networkProfile"].pop("networkInterfaceConfigurations", None) or ()
        properties["networkProfile"].pop("networkApiVersion", None)
        if configs:
            made = [self._network.attach(call, body["id"], config, body["location"]) for config in configs]
            properties["networkProfile"]["networkInterfaces"] = made
        self._make_disk(call, body)
        spec = self._host_spec(body, custom_data, image)
        machine = Machine(body, Host(spec, self._world.command_asked), spec.address)
        machine.condition.disk_gb = float(properties["storageProfile"]["osDisk"]["diskSizeGB"])
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
                    "creationData": {"createOption": "FromImage"},
                    "diskSizeGB": disk["diskSizeGB"],
                    "diskState": "Attached",
                    "provisioningState": "Succeeded",
                },
            },
        )
        disk["managedDisk"]["id"] = stored["id"]
        self._world.bill.begin(stored, "disk", disk_usd_per_hour(kind, disk["diskSizeGB"]), vm=body["name"])

    def _host_spec(self, body: Body, custom_data: str | None, image: Path | None) -> HostSpec:
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
            imds_url=f"{self._world.plain_url}/imds/{properties['vmId']}",
            vm=properties["vmId"],
            docker=self._world.docker_at,
            image=image,
        )

    def _image(self, body: Body) -> Path | None:
        """Return the disk that the VM begins with, where its request names an image of ours."""
        wanted = inside(body["properties"], "storageProfile", "imageReference", "id")
        if wanted is None or self.images is None:
            return None
        return self.images(wanted, body["location"], body["properties"]["hardwareProfile"]["vmSize"])[1]

    async def switch_on(self, machine: Machine) -> None:
        async with machine.lock:
            if machine.gone:
                raise ArmError(409, "OperationPreempted", f"{machine.name} was deleted meanwhile.")
            if machine.power == "running":
                return
            await self.boot(machine)
            machine.power = "running"
            usd = self._world.skus.usd_per_hour(machine.size, machine.body["location"], spot=machine.spot)
            self._world.bill.begin(machine.body, "vm", usd, size=machine.size, spot=machine.spot)
            self._world.journal.tell("vm.running", machine.name)

    async def boot(self, machine: Machine) -> None:
        """Let the host begin, in the condition that its hardware and the faults of this start give it."""
        condition = machine.condition
        condition.kvm, condition.docker = _has_kvm(self._world, machine), True
        condition.clock_skew_s, condition.latency_s = 0.0, 0.0
        ssh: str | None = None
        for fault in self._world.faults_of("host.boot", machine.attributes()):
            await asyncio.sleep(fault.delay)
            if fault.preset is not None:
                apply(condition, fault)
                ssh = fault.preset if BOOT[fault.preset].ssh else ssh
        await machine.host.lay_out()
        # An image holds the containers of the machine that it was made of: they run on no other.
        known = containers.load(machine.host.docker_folder).containers.values()
        machine.boots = 1 + max(machine.boots, *(each.boot for each in known), 0)
        await self.show(machine)
        await machine.host.boot(condition, ssh)
        machine.shut = False
        await self.apply_rules(machine)
        for change in self._world.links:
            if fnmatchcase(machine.name, change.name):
                self._world.tasks.start_soon(self._change_link, machine, change, machine.boots)

    async def show(self, machine: Machine) -> None:
        """Let the host's programs show what its condition is now."""
        images_gb = containers.load(machine.host.docker_folder).images_gb()
        await machine.host.show(machine.condition, images_gb)

    async def apply_rules(self, machine: Machine) -> None:
        """Let no connection to the machine through that its security group does not admit."""
        if not machine.address.startswith("127."):
            return
        shut = not self._network.admits(machine.body)
        if shut != machine.shut:
            machine.shut = shut
            await self.set_link(machine, blocked=shut, latency_s=machine.condition.latency_s)

    async def apply_all_rules(self) -> None:
        for machine in [*self._known.values()]:
            if machine.power == "running":
                await self.apply_rules(machine)

    async def set_link(self, machine: Machine, *, blocked: bool, latency_s: float) -> None:
        await machine.host.set_link(blocked=blocked, latency_s=latency_s)
        self._world.journal.tell("link.changed", machine.name, blocked=blocked, latency_s=latency_s)

    async def _change_link(self, machine: Machine, change: LinkChange, boots: int) -> None:
        """Cut or slow a machine's network at its time after the start, and heal it at its end."""
        await self._world.clock.sleep(change.at)
        if machine.power != "running" or machine.boots != boots:
            return
        await self.set_link(machine, blocked=change.blocked, latency_s=change.latency_s)
        if change.lasts is not None:
            await self._world.clock.sleep(change.lasts)
            if machine.power == "running" and machine.boots == boots:
                await self.set_link(machine, blocked=False, latency_s=0.0)

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

    def evict(self, machine: Machine, *, silent: bool = False) -> None:
        """Give a spot machine notice, and take it away when that is over or agreed to; a silent eviction is at once.

        Raises:
            ArmError: it is no spot machine, or does not run.
        """
        if not machine.spot or machine.power != "running":
            raise ArmError(400, "BadRequest", f"{machine.name} is not a running spot machine.")
        clock = self._world.clock
        notice = Notice(str(uuid.uuid4()).upper(), clock.now() + clock.real(self._world.times.notice))
        if silent:
            notice.approved.set()
        else:
            machine.notices.append(notice)
            machine.incarnation += 1
            self._world.journal.tell("vm.preempting", machine.name, event=notice.id)
        self._world.tasks.start_soon(self._take_away, machine, notice, silent)

    def evict_some(self, eviction: Eviction) -> list[str]:
        """Evict so many of the spot machines that run, and return their names; which ones is chance."""
        running = [m for m in self.all() if m.spot and m.power == "running" and fnmatchcase(m.name, eviction.name)]
        running.sort(key=lambda machine: machine.name)
        chosen = self._world.rng.sample(running, eviction.of(len(running)))
        for machine in chosen:
            self.evict(machine, silent=eviction.silent)
        return sorted(machine.name for machine in chosen)

    async def _take_away(self, machine: Machine, notice: Notice, silent: bool) -> None:
        with anyio.move_on_after(self._world.clock.real(self._world.times.notice)):
            await notice.approved.wait()
        notice.started = True
        policy = machine.body["properties"].get("evictionPolicy", "Deallocate")
        self._world.journal.tell("vm.evicted", machine.name, silent=silent, policy=policy)
        if policy == "Delete":
            await self.end(machine)
        else:
            await self.switch_off(machine)

    async def close(self) -> None:
        """End every host, with the emulator."""
        await asyncio.to_thread(processes.end_all, self._world.folder / "vms")  # all at once: each look takes a while
        for machine in self.all():
            await machine.host.remove()


def _has_kvm(world: EmulatorContext, machine: Machine) -> bool:
    """Whether the size has nested virtualization, and its security type leaves it usable."""
    security = inside(machine.body["properties"], "securityProfile", "securityType") or "Standard"
    return world.skus.find(machine.size).nested and security == "Standard"


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
