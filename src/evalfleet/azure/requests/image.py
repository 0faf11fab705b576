"""The bodies of the requests that make a golden image of a worker. Pure functions of plain records.

The disk of the worker is copied as it is (a snapshot), and the copy becomes a version in a gallery, in every region
that the pool may use. The worker itself is left alone: neither stopped nor generalized, which would be its end. The
image is told to be generalized all the same, because only of such ones a VM can be made that has login keys and
cloud-init of its own; cloud-init sees a new instance in it, and makes host key, host name and user anew. A managed image
would do for one region, and cannot be had for machines with Trusted Launch; a gallery can.
"""

from __future__ import annotations

import re
from typing import Any

from msgspec import Struct

from evalfleet.errors import InputError
from evalfleet.pools.cloud.records import DISK_GB, LABEL_IMAGE, LABEL_OWNER

Body = dict[str, Any]

GALLERY = "evalfleet"
FIRST_VERSION = "1.0.0"
_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._-]{0,78}[a-zA-Z0-9]|[a-zA-Z0-9]")
_VERSION = re.compile(r"\d{1,9}\.\d{1,9}\.\d{1,9}")


class ImageSpec(Struct, frozen=True, kw_only=True):
    """One wanted image."""

    name: str
    version: str = FIRST_VERSION
    owner: str
    source_disk: str  # id of the worker's disk
    source_region: str
    regions: tuple[str, ...]  # where VMs shall be made from it; the source's is always among them
    generation: int = 2  # of the worker's own image
    disk_gb: int = DISK_GB


def check_name(name: str) -> str:
    """Return the name, if Azure takes it. Raises InputError where it does not; says why."""
    if not _NAME.fullmatch(name):
        raise InputError(
            f'image "{name}": the name of an image has letters, digits, dots, dashes and underscores, at most 80, and '
            "begins and ends with a letter or digit."
        )
    return name


def next_version(known: list[str]) -> str:
    """Return the version after the newest of those."""
    numbers = [tuple(map(int, version.split("."))) for version in known if _VERSION.fullmatch(version)]
    if not numbers:
        return FIRST_VERSION
    major, minor, patch = max(numbers)
    return f"{major}.{minor}.{patch + 1}"


def labels(name: str, owner: str) -> dict[str, str]:
    """Return the tags of all that belongs to an image. It belongs to no pool: it outlives them."""
    return {LABEL_IMAGE: name, LABEL_OWNER: owner}


def gallery_body(region: str, owner: str) -> Body:
    return {
        "location": region,
        "tags": {LABEL_OWNER: owner},
        "properties": {"description": "Images of evalfleet workers"},
    }


def definition_body(spec: ImageSpec) -> Body:
    """Return what all versions of the image share."""
    properties: Body = {
        "osType": "Linux",
        "osState": "Generalized",
        "hyperVGeneration": f"V{spec.generation}",
        "architecture": "x64",
        # Sizes since v6 have NVMe disks only, and boot no image that does not say that it can.
        "features": [{"name": "DiskControllerTypes", "value": "SCSI, NVMe"}],
        "identifier": {"publisher": "evalfleet", "offer": "worker", "sku": spec.name},
    }
    return {"location": spec.source_region, "tags": labels(spec.name, spec.owner), "properties": properties}


def snapshot_body(spec: ImageSpec) -> Body:
    """Return the copy of the worker's disk, which is needed only until the version is there."""
    return {
        "location": spec.source_region,
        "tags": labels(spec.name, spec.owner),
        "sku": {"name": "Standard_LRS"},
        "properties": {"creationData": {"createOption": "Copy", "sourceResourceId": spec.source_disk}},
    }


def version_body(spec: ImageSpec, snapshot_id: str) -> Body:
    regions = dict.fromkeys((spec.source_region, *spec.regions))
    targets = [{"name": region, "regionalReplicaCount": 1, "storageAccountType": "Standard_LRS"} for region in regions]
    properties: Body = {
        "publishingProfile": {"targetRegions": targets, "replicaCount": 1, "excludeFromLatest": False},
        "storageProfile": {"osDiskImage": {"source": {"id": snapshot_id}}},
    }
    return {"location": spec.source_region, "tags": labels(spec.name, spec.owner), "properties": properties}
