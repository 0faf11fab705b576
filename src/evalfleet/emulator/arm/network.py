"""Virtual networks, security groups, network interfaces and public addresses."""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable
from typing import Any

from evalfleet.azure.prices import IP_USD_PER_HOUR
from evalfleet.azure.responses import inside
from evalfleet.azure.settings import PRIVATE
from evalfleet.emulator.arm.protocol import ArmError, Body, Call, Routes, Target, answer, require_location
from evalfleet.emulator.arm.resources import IP, NIC, NSG, VM, VNET
from evalfleet.emulator.context import EmulatorContext

_CHILDREN = {"securityrules": "securityRules", "subnets": "subnets"}
KINDS = (VNET, NSG, NIC, IP)


class Network:
    """The types of Microsoft.Network. A VM's own interface and address are made and ended by the VM."""

    def __init__(self, world: EmulatorContext) -> None:
        self._world = world
        self.changed: Callable[[], Awaitable[None]] = _nothing  # told of every change of a rule; set by the app

    def routes(self) -> Routes:
        routes: Routes = {("GET", "microsoft.network/locations", "usages"): self._usages}
        for kind in KINDS:
            routes["PUT", kind, ""] = self._put
            routes["GET", kind, ""] = self._get
            routes["DELETE", kind, ""] = self._delete
        return routes

    def attach(self, call: Call, vm_id: str, config: Body, location: str) -> Body:
        """Make the interface and the address that a VM's request describes; return the reference to the interface."""
        properties = config["properties"]
        rows: list[Body] = []
        for each in properties.get("ipConfigurations") or ():
            inner = each["properties"]
            subnet: str = inside(inner, "subnet", "id") or ""
            self._must_exist(subnet.rpartition("/subnets/")[0], "subnet", subnet)
            public = inner.get("publicIPAddressConfiguration")
            row: Body = {
                "privateIPAddress": "10.77.0.4" if public else self._world.addresses.take(),
                "privateIPAllocationMethod": "Dynamic",
                "subnet": {"id": subnet},
            }
            if public:
                option = inside(public, "properties", "deleteOption") or "Detach"
                address = self._address(call.target, public, location, vm_id)
                row["publicIPAddress"] = {"id": address["id"], "properties": {"deleteOption": option}}
            rows.append({"name": each["name"], "properties": row})
        body: Body = {
            "location": location,
            "tags": config.get("tags") or {},
            "properties": {
                "provisioningState": "Succeeded",
                "primary": properties.get("primary", True),
                "virtualMachine": {"id": vm_id},
                "ipConfigurations": rows,
            },
        }
        group = properties.get("networkSecurityGroup")
        if group:
            self._must_exist(group["id"], "networkSecurityGroup", group["id"])
            body["properties"]["networkSecurityGroup"] = {"id": group["id"]}
        nic = self._world.resources.put(call.target, NIC, config["name"], body)
        options = {"primary": True, "deleteOption": properties.get("deleteOption", "Detach")}
        return {"id": nic["id"], "properties": options}

    def detach(self, reference: Body) -> None:
        """End what a deleted VM takes with it; what says Detach stays, without a VM."""
        nic = self._world.resources.find(reference["id"])
        if nic is None:
            return
        if reference["properties"].get("deleteOption") != "Delete":
            nic["properties"].pop("virtualMachine", None)
            return
        for each in nic["properties"]["ipConfigurations"]:
            public = each["properties"].get("publicIPAddress")
            if public and inside(public, "properties", "deleteOption") == "Delete":
                self._drop(public["id"])
        self._drop(nic["id"])

    def public_address(self, reference: Body) -> str | None:
        """Return the address under which an interface is reached: by the world, or without a public one inside its network."""
        nic = self._world.resources.find(reference["id"])
        for each in nic["properties"]["ipConfigurations"] if nic else ():
            public = each["properties"].get("publicIPAddress")
            found = self._world.resources.find(public["id"]) if public else None
            if found:
                return found["properties"]["ipAddress"]
            if not public:
                return each["properties"]["privateIPAddress"]
        return None

    def _address(self, target: Target, config: Body, location: str, vm_id: str) -> Body:
        address = self._world.addresses.take()
        properties = {"ipAddress": address, "publicIPAllocationMethod": "Static", "provisioningState": "Succeeded"}
        body: Body = {"location": location, "tags": config.get("tags") or {}, "properties": properties}
        body["sku"] = config.get("sku") or {"name": "Standard"}
        stored = self._world.resources.put(target, IP, config["name"], body)
        self._world.bill.begin(stored, "ip", IP_USD_PER_HOUR, vm=vm_id.rpartition("/")[2])
        return stored

    def _drop(self, id: str) -> None:
        self._world.bill.end(id)
        self._world.resources.drop(id)

    def _must_exist(self, id: str, what: str, named: str) -> None:
        if self._world.resources.find(id) is None:
            said = f"Resource {named} referenced by {what} was not found. Please make sure that it exists."
            raise ArmError(400, "InvalidResourceReference", said)

    async def _usages(self, call: Call) -> Any:
        await self._world.meet("network.usages", call.attributes())
        used = sum(each["location"] == call.target.location for each in self._world.resources.of(IP))
        row = {"currentValue": used, "limit": self._world.scenario.address_limit, "unit": "Count"}
        name = {"value": "StandardSkuPublicIpAddresses", "localizedValue": "Public IPv4 Addresses - Standard"}
        return answer({"value": [{**row, "name": name}]})

    async def _put(self, call: Call) -> Any:
        late = await self._world.meet("network.put", call.attributes())
        target, body = call.target, call.body
        if target.action:
            return await self._put_child(call)
        existed = self._world.resources.find(self._world.resources.id_of(target, target.kind, target.name))
        require_location(existed, body["location"])
        stored = self._world.resources.put(
            target, target.kind, target.name, {**body, "location": body["location"].lower()}
        )
        _fill(stored)

        async def work() -> None:
            await self._world.clock.sleep(self._world.times.network)
            if late is not None:
                raise late

        await self.changed()
        self._world.journal.tell("network.put", target.name, of=stored["type"])
        return self._world.operations.accepted(call, stored["location"], work, stored, 200 if existed else 201)

    async def _put_child(self, call: Call) -> Any:
        """A rule of a security group, or a subnet."""
        parent = self._world.resources.get(call.target)
        kind, _, name = call.target.action.partition("/")
        rows: list[Body] = parent["properties"].setdefault(_CHILDREN[kind], [])
        others = [each for each in rows if each["name"].lower() != name]
        child: Body = {"name": name, **call.body}
        taken = {(each["properties"].get("priority"), each["properties"].get("direction")) for each in others}
        if kind == "securityrules" and ((child["properties"]["priority"], child["properties"]["direction"]) in taken):
            said = f"Security rule {name} conflicts with another rule: the priority is taken."
            raise ArmError(400, "SecurityRuleConflict", said)
        rows[:] = [*others, child]
        _fill(parent)
        await self.changed()
        return answer(child, 200 if len(others) < len(rows) - 1 else 201)

    def admits(self, vm: Body, client: str = "127.0.0.1") -> bool:
        """Whether the security group of the VM's interface lets SSH in from that address; without a group all is let in."""
        for reference in inside(vm, "properties", "networkProfile", "networkInterfaces") or ():
            nic = self._world.resources.find(reference["id"])
            group = self._world.resources.find(inside(nic, "properties", "networkSecurityGroup", "id") or "")
            if group is not None:
                return any(
                    _lets_in(rule["properties"], client) for rule in group["properties"].get("securityRules") or ()
                )
        return True

    async def _get(self, call: Call) -> Any:
        await self._world.meet("network.get", call.attributes())
        if not call.target.name:
            return answer({"value": self._world.resources.listed(call.target.kind, call.target.group)})
        body = self._world.resources.get(call.target)
        if not call.target.action:
            return answer(body)
        return answer(_subnet(body, call.target.action))

    async def _delete(self, call: Call) -> Any:
        await self._world.meet("network.delete", call.attributes())
        body = self._world.resources.find(self._world.resources.id_of(call.target, call.target.kind, call.target.name))
        if body is None:
            return answer(status=204)
        self._refuse_if_used(call.target.kind, body)
        self._drop(body["id"])

        async def work() -> None:
            await self._world.clock.sleep(self._world.times.network)

        self._world.journal.tell("network.deleted", call.target.name, of=body["type"])
        return self._world.operations.accepted(call, body["location"], work)

    def _refuse_if_used(self, kind: str, body: Body) -> None:
        name, own = body["name"], body["id"].lower()
        nics = [nic for nic in self._world.resources.of(NIC) if nic["id"].lower() != own]
        if kind == NIC and "virtualMachine" in body["properties"]:
            raise ArmError(400, "NicInUse", f"Network Interface {name} is used by an existing resource {VM}.")
        if kind in (VNET, NSG, IP) and any(own in str(nic).lower() for nic in nics):
            code = {VNET: "InUseSubnetCannotBeDeleted", NSG: "InUseNetworkSecurityGroupCannotBeDeleted"}.get(
                kind, "PublicIPAddressCannotBeDeleted"
            )
            raise ArmError(400, code, f"{name} is in use and cannot be deleted.")


def _fill(stored: Body) -> None:
    """Add what Azure adds to a resource that is put."""
    properties = stored.setdefault("properties", {})
    properties["provisioningState"] = "Succeeded"
    for name in ("subnets", "securityRules"):
        for child in properties.get(name) or ():
            child["id"] = f"{stored['id']}/{name}/{child['name']}"
            child["properties"]["provisioningState"] = "Succeeded"


async def _nothing() -> None: ...


def _lets_in(rule: Body, client: str) -> bool:
    sources = [rule.get("sourceAddressPrefix"), *(rule.get("sourceAddressPrefixes") or ())]
    if (rule.get("access"), rule.get("direction"), rule.get("destinationPortRange")) != ("Allow", "Inbound", "22"):
        return False
    return any(
        source == PRIVATE or ipaddress.ip_address(client) in ipaddress.ip_network(source)
        for source in sources
        if source
    )


def _subnet(body: Body, action: str) -> Body:
    kind, _, name = action.partition("/")
    for child in body["properties"].get(_CHILDREN.get(kind, kind)) or ():
        if child["name"].lower() == name.lower():
            return child
    raise ArmError(404, "NotFound", f"{body['name']} has no {action}.")
