"""What Azure says about a VM, read into a plain record. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct

from evalfleet.azure.error_causes import ErrorFacts


class VmView(Struct, frozen=True, kw_only=True):
    """One VM as the cloud sees it."""

    name: str
    id: str
    region: str
    size: str
    spot: bool
    tags: Mapping[str, str]
    provisioning: str  # Creating, Succeeded, Failed, Updating, Deleting
    power: str | None  # running, starting, stopped, deallocating, deallocated; None: not known (yet)
    nic_id: str | None
    failure: ErrorFacts | None  # why provisioning failed, where Azure tells
    disk_id: str | None = None


class Owned(Struct, frozen=True, kw_only=True):
    """Any resource that carries our tags."""

    id: str
    type: str
    name: str
    region: str
    tags: Mapping[str, str]


def vm_view(body: Mapping[str, Any]) -> VmView:
    """Read the body of a VM."""
    properties: Any = body.get("properties")
    statuses = inside(properties, "instanceView", "statuses") or ()
    interfaces = inside(properties, "networkProfile", "networkInterfaces") or ()
    return VmView(
        name=body["name"],
        id=body["id"],
        region=body["location"],
        size=inside(properties, "hardwareProfile", "vmSize") or "",
        spot=inside(properties, "priority") == "Spot",
        tags=dict(body.get("tags") or {}),
        provisioning=inside(properties, "provisioningState") or "",
        power=power(statuses),
        nic_id=interfaces[0]["id"] if interfaces else None,
        failure=failure(statuses),
        disk_id=inside(properties, "storageProfile", "osDisk", "managedDisk", "id"),
    )


def inside(value: Any, *names: str) -> Any:
    """Return what lies that deep, or None where something on the way is missing."""
    for name in names:
        if value is None:
            return None
        value = value.get(name)
    return value


def power(statuses: Iterable[Mapping[str, Any]]) -> str | None:
    codes = (str(status.get("code", "")) for status in statuses)
    return next((code.removeprefix("PowerState/") for code in codes if code.startswith("PowerState/")), None)


def failure(statuses: Iterable[Mapping[str, Any]]) -> ErrorFacts | None:
    """Read `ProvisioningState/failed/AllocationFailed`, where the code of a lost operation can still be found."""
    for status in statuses:
        parts = str(status.get("code", "")).split("/")
        if parts[:2] == ["ProvisioningState", "failed"] and len(parts) > 2:
            return ErrorFacts(code=parts[2], message=str(status.get("message") or ""), status=200)
    return None


def owned(body: Mapping[str, Any]) -> Owned:
    return Owned(
        id=body["id"],
        type=body["type"],
        name=body["name"],
        region=body.get("location", ""),
        tags=dict(body.get("tags") or {}),
    )
