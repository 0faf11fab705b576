"""What the SKU API tells of sizes: for those that no series of the table has. Each is asked for once, and kept in the home."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from evalfleet.azure import sizes
from evalfleet.azure.sizes import Series, Size

if TYPE_CHECKING:
    from evalfleet.azure.arm import Arm

API = "2021-07-01"
_MACHINES = "virtualMachines"


async def listed(arm: Arm, subscription: str, region: str) -> dict[str, Mapping[str, Any]]:
    """The sizes of machines in a region, by name in lower case. Azure lists all of them or none."""
    path = f"/subscriptions/{subscription}/providers/Microsoft.Compute/skus"
    rows = await arm.list(path, API, {"$filter": f"location eq '{region}'"})
    return {str(row["name"]).lower(): row for row in rows if row.get("resourceType") == _MACHINES}


def size_of(row: Mapping[str, Any]) -> Size:
    """Read one row of the list."""
    told = {str(each["name"]): str(each["value"]) for each in row.get("capabilities") or ()}
    name, vcpus = str(row["name"]), int(told.get("vCPUsAvailable") or told.get("vCPUs") or 1)
    generations = [int(part.strip().removeprefix("V")) for part in told.get("HyperVGenerations", "V1,V2").split(",")]
    memory_gb = float(told.get("MemoryGB", 0))
    series = Series(
        pattern=name,
        family=str(row.get("family") or ""),
        gb_per_vcpu=memory_gb / vcpus,
        nested=sizes.is_nested(name),
        generations=tuple(generations),
        premium=told.get("PremiumIO") == "True",
        nvme=told.get("DiskControllerTypes") == "NVMe",
        temporary_disk=int(told.get("MaxResourceVolumeMB", 0)) > 0 or int(told.get("NvmeDiskSizeInMiB", 0)) > 0,
        arm=told.get("CpuArchitectureType") == "Arm64",
    )
    return Size(name=name, vcpus=vcpus, memory_gb=memory_gb, series=series, gpus=int(told.get("GPUs", 0)))


def load(path: Path) -> None:
    """Know what the file holds; one that cannot be read is as none."""
    for size in _stored(path):
        sizes.learn(size)


def store(path: Path, size: Size) -> None:
    """Add a size to the file. A home that cannot be written keeps nothing: Azure is asked again."""
    kept = {each.name: each for each in [*_stored(path), size]}
    partial = path.with_suffix(".partial")
    try:
        partial.write_bytes(msgspec.json.encode(list(kept.values())))
        os.replace(partial, path)
    except OSError:
        return


def _stored(path: Path) -> list[Size]:
    try:
        return msgspec.json.decode(path.read_bytes(), type=list[Size])
    except (OSError, msgspec.DecodeError):
        return []
