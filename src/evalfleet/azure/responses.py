"""What Azure says about a VM, read into a plain record. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

from evalfleet.azure.error_causes import ErrorFacts, classify
from evalfleet.core.hosts.lifecycle import Power, Stage
from evalfleet.pools.cloud.records import Kind, MachineView, Resource

_STAGES = {"Creating": Stage.CREATING, "Failed": Stage.FAILED, "Deleting": Stage.DELETING}
_POWERS = {
    "starting": Power.STARTING,
    "running": Power.RUNNING,
    "stopping": Power.STOPPING,
    "deallocating": Power.STOPPING,
    "stopped": Power.OFF,
    "deallocated": Power.RELEASED,
}
# What each type is, in the order in which they can be deleted: each needs what stands before it to be gone.
_KINDS = {
    kind: (what, order)
    for order, (kind, what) in enumerate(
        {
            "microsoft.compute/virtualmachines": Kind.MACHINE,
            "microsoft.devtestlab/schedules": Kind.DEADLINE,
            "microsoft.network/networkinterfaces": Kind.PART,
            "microsoft.network/publicipaddresses": Kind.PART,
            "microsoft.compute/disks": Kind.PART,
            "microsoft.compute/snapshots": Kind.PART,
            "microsoft.network/virtualnetworks": Kind.NETWORK,
            "microsoft.network/networksecuritygroups": Kind.NETWORK,
        }.items()
    )
}
# How the parts of a VM are named after it: prefix and suffix, by type.
_PARTS = {
    "microsoft.compute/virtualmachines": ("", ""),
    "microsoft.devtestlab/schedules": ("shutdown-computevm-", ""),
    "microsoft.network/networkinterfaces": ("", "-nic"),
    "microsoft.network/publicipaddresses": ("", "-ip"),
    "microsoft.compute/disks": ("", "-disk"),
}


class VmView(MachineView, frozen=True, kw_only=True):
    """One VM as the cloud sees it, with the ids of its parts."""

    id: str
    nic_id: str | None
    disk_id: str | None


def vm_view(body: Mapping[str, Any]) -> VmView:
    """Read the body of a VM."""
    properties: Any = body.get("properties")
    statuses = inside(properties, "instanceView", "statuses") or ()
    interfaces = inside(properties, "networkProfile", "networkInterfaces") or ()
    region, spot = body["location"], inside(properties, "priority") == "Spot"
    size = inside(properties, "hardwareProfile", "vmSize") or ""
    failed = failure(statuses)
    return VmView(
        name=body["name"],
        id=body["id"],
        region=region,
        size=size,
        spot=spot,
        labels=dict(body.get("tags") or {}),
        stage=_STAGES.get(inside(properties, "provisioningState"), Stage.MADE),
        power=power(statuses),
        problem=None if failed is None else classify(failed, region=region, size=size, spot=spot),
        nic_id=interfaces[0]["id"] if interfaces else None,
        disk_id=inside(properties, "storageProfile", "osDisk", "managedDisk", "id"),
    )


def inside(value: Any, *names: str) -> Any:
    """Return what lies that deep, or None where something on the way is missing."""
    for name in names:
        if value is None:
            return None
        value = value.get(name)
    return value


def power(statuses: Iterable[Mapping[str, Any]]) -> Power | None:
    codes = (str(status.get("code", "")) for status in statuses)
    return next(
        (_POWERS.get(code.removeprefix("PowerState/")) for code in codes if code.startswith("PowerState/")), None
    )


def failure(statuses: Iterable[Mapping[str, Any]]) -> ErrorFacts | None:
    """Read `ProvisioningState/failed/AllocationFailed`, where the code of a lost operation can still be found."""
    for status in statuses:
        parts = str(status.get("code", "")).split("/")
        if parts[:2] == ["ProvisioningState", "failed"] and len(parts) > 2:
            return ErrorFacts(code=parts[2], message=str(status.get("message") or ""), status=200)
    return None


def private_ip(nic: Mapping[str, Any]) -> str | None:
    for each in nic["properties"].get("ipConfigurations") or ():
        if each["properties"].get("privateIPAddress"):
            return cast("str", each["properties"]["privateIPAddress"])
    return None


def public_ip_id(nic: Mapping[str, Any]) -> str | None:
    for each in nic["properties"].get("ipConfigurations") or ():
        public = each["properties"].get("publicIPAddress")
        if public:
            return cast("str", public["id"])
    return None


def resource(body: Mapping[str, Any]) -> Resource:
    kind, name = str(body["type"]).lower(), str(body["name"])
    what, order = _KINDS.get(kind, (Kind.PART, len(_KINDS)))
    return Resource(
        id=body["id"],
        name=name,
        kind=what,
        type=body["type"],
        region=body.get("location", ""),
        labels=dict(body.get("tags") or {}),
        machine=_machine(name, kind),
        order=order,
    )


def _machine(name: str, kind: str) -> str | None:
    """The VM that a resource is, or is a part of: parts are named after it."""
    prefix, suffix = _PARTS.get(kind, (None, ""))
    return None if prefix is None else name.removeprefix(prefix).removesuffix(suffix)
