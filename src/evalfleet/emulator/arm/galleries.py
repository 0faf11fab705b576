"""Galleries: images in versions, with replicas in regions. A version holds a copy of a disk, and VMs begin with it."""

from __future__ import annotations

import asyncio
import copy
import shutil
import uuid
from pathlib import Path
from typing import Any

from evalfleet.azure.prices import snapshot_usd_per_hour
from evalfleet.azure.responses import inside
from evalfleet.emulator.arm.protocol import ArmError, Body, Call, Routes, answer, not_found, require_location
from evalfleet.emulator.arm.resources import GALLERY, IMAGE, SNAPSHOT, VERSION
from evalfleet.emulator.arm.snapshots import Snapshots
from evalfleet.emulator.context import EmulatorContext
from evalfleet.emulator.machines.host import copy_tree


class Galleries:
    """Microsoft.Compute/galleries, their images, and the versions of these."""

    def __init__(self, world: EmulatorContext, snapshots: Snapshots) -> None:
        self._world = world
        self._snapshots = snapshots
        self._contents: dict[str, Path] = {}

    def routes(self) -> Routes:
        routes: Routes = {}
        for kind in (GALLERY, IMAGE, VERSION):
            routes["PUT", kind, ""] = self._put_version if kind == VERSION else self._put
            routes["GET", kind, ""] = self._get
            routes["DELETE", kind, ""] = self._delete
        return routes

    def content(self, image_id: str, region: str, size_name: str = "") -> tuple[Body, Path]:
        """Return the version and its content that a VM in that region begins with; an image stands for its newest.

        Raises:
            ArmError: there is none there.
        """
        versions = [
            body
            for body in self._world.resources.of(VERSION)
            if image_id.lower() in (body["id"].lower(), body["id"].lower().rpartition("/versions/")[0])
            and body["properties"]["provisioningState"] == "Succeeded"
            and region.lower() in _regions(body)
        ]
        if not versions:
            said = (
                f"The gallery image {image_id} is not available in {region} region. Please contact image owner to "
                "replicate to this region, or change your requested region."
            )
            raise ArmError(404, "GalleryImageNotFound", said)
        size = self._world.skus.known(size_name)
        if size is not None and size.series.nvme and not self._has_nvme(versions[0]):
            said = f"The VM size '{size_name}' cannot boot with the OS image: it supports the disk controller type NVMe only."
            raise ArmError(400, "InvalidParameter", said)
        newest = max(versions, key=lambda body: [int(part) for part in body["name"].split(".")])
        return newest, self._contents[newest["id"].lower()]

    def _has_nvme(self, version: Body) -> bool:
        definition = self._world.resources.find(version["id"].rpartition("/versions/")[0])
        features = definition["properties"].get("features") or () if definition else ()
        return any(each["name"] == "DiskControllerTypes" and "NVMe" in each["value"] for each in features)

    async def _put(self, call: Call) -> Any:
        await self._world.meet("image.put", call.attributes())
        resources, target = self._world.resources, call.target
        self._parent_of(call)
        known = resources.find(resources.id_of(target, target.kind, target.name))
        require_location(known, call.body["location"])
        existed = known is not None
        stored = resources.put(target, target.kind, target.name, copy.deepcopy(call.body))
        stored["location"] = stored["location"].lower()
        stored["properties"]["provisioningState"] = "Succeeded"
        return answer(stored, 200 if existed else 201)

    async def _put_version(self, call: Call) -> Any:
        late = await self._world.meet("image.create", call.attributes())
        resources, target = self._world.resources, call.target
        self._parent_of(call)
        source: str = inside(call.body, "properties", "storageProfile", "osDiskImage", "source", "id") or ""
        snapshot = resources.find(source)
        if snapshot is None or snapshot["type"].lower() != SNAPSHOT:
            raise ArmError(404, "ResourceNotFound", f"The source {source} of the image version was not found.")
        existing = resources.find(resources.id_of(target, VERSION, target.name))
        if existing is not None and existing["properties"]["provisioningState"] != "Failed":
            return answer(existing)
        stored = resources.put(target, VERSION, target.name, copy.deepcopy(call.body))
        properties, size = stored["properties"], snapshot["properties"]["diskSizeGB"]
        stored["location"] = stored["location"].lower()
        properties["provisioningState"] = "Creating"
        properties["storageProfile"]["osDiskImage"]["sizeInGB"] = size
        replicas = sum(each.get("regionalReplicaCount", 1) for each in properties["publishingProfile"]["targetRegions"])
        self._world.bill.begin(stored, "image", snapshot_usd_per_hour(size) * replicas, replicas=replicas)
        self._world.journal.tell("image.creating", target.name)

        async def work() -> None:
            await self._world.clock.sleep(self._world.times.image)
            if late is not None:
                properties["provisioningState"] = "Failed"
                raise late
            folder = self._world.folder / "images" / str(uuid.uuid4())
            await copy_tree(self._snapshots.content(source), folder)
            self._contents[stored["id"].lower()] = folder
            properties["provisioningState"] = "Succeeded"
            self._world.journal.tell("image.made", target.name)

        return self._world.operations.accepted(call, stored["location"], work, stored, 201)

    def _parent_of(self, call: Call) -> None:
        """Refuse what would lie in nothing."""
        target = call.target
        self._world.resources.group(target.group)
        kind, _, _ = target.kind.rpartition("/")
        name, nested, _ = target.name.rpartition("/")
        if nested and self._world.resources.find(self._world.resources.id_of(target, kind, name)) is None:
            raise not_found(kind, name, target.group)

    async def _get(self, call: Call) -> Any:
        await self._world.meet("image.get", call.attributes())
        target = call.target
        if target.kind.count("/") > target.name.count("/") + 1 or not target.name:
            base = (
                self._world.resources.id_of(target, target.kind.rpartition("/")[0], target.name) if target.name else ""
            )
            found = self._world.resources.of(target.kind, target.group)
            return answer({"value": [body for body in found if body["id"].lower().startswith(base.lower())]})
        return answer(self._world.resources.get(target))

    async def _delete(self, call: Call) -> Any:
        await self._world.meet("image.delete", call.attributes())
        resources, target = self._world.resources, call.target
        body = resources.find(resources.id_of(target, target.kind, target.name))
        if body is None:
            return answer(status=204)
        inner = [each for each in resources if each["id"].lower().startswith(body["id"].lower() + "/")]
        if inner:
            said = f"Can not delete resource before nested resources are deleted: {inner[0]['id']}."
            raise ArmError(409, "CannotDeleteResource", said)
        self._world.bill.end(body["id"])
        resources.drop(body["id"])
        folder = self._contents.pop(body["id"].lower(), None)

        async def work() -> None:
            if folder is not None:
                await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
            self._world.journal.tell("image.deleted", target.name)

        return self._world.operations.accepted(call, body["location"], work)


def _regions(version: Body) -> list[str]:
    targets = version["properties"]["publishingProfile"]["targetRegions"]
    return [str(target["name"]).lower().replace(" ", "") for target in targets]
