"""Snapshots: copies of disks. Their content is a folder beside the VMs'."""

from __future__ import annotations

import asyncio
import copy
import shutil
import uuid
from pathlib import Path
from typing import Any

from evalfleet.azure.prices import snapshot_usd_per_hour
from evalfleet.azure.responses import inside
from evalfleet.emulator.arm.protocol import ArmError, Body, Call, Routes, answer
from evalfleet.emulator.arm.resources import SNAPSHOT
from evalfleet.emulator.context import EmulatorContext
from evalfleet.emulator.machines.machines import Machines


class Snapshots:
    """Microsoft.Compute/snapshots of disks that a VM has."""

    def __init__(self, world: EmulatorContext, machines: Machines) -> None:
        self._world = world
        self._machines = machines
        self._contents: dict[str, Path] = {}

    def routes(self) -> Routes:
        return {
            ("PUT", SNAPSHOT, ""): self._put,
            ("GET", SNAPSHOT, ""): self._get,
            ("DELETE", SNAPSHOT, ""): self._delete,
        }

    def content(self, id: str) -> Path:
        """Return the folder of a snapshot's content.

        Raises:
            ArmError: there is no such snapshot.
        """
        found = self._contents.get(id.lower())
        if found is None:
            raise ArmError(404, "ResourceNotFound", f"The snapshot {id} was not found.")
        return found

    async def _put(self, call: Call) -> Any:
        late = await self._world.meet("snapshot.create", call.attributes())
        source: str = inside(call.body, "properties", "creationData", "sourceResourceId") or ""
        disk = self._world.resources.find(source)
        if disk is None or inside(call.body, "properties", "creationData", "createOption") != "Copy":
            raise ArmError(
                404, "ResourceNotFound", f"The source {source} of snapshot {call.target.name} was not found."
            )
        key = self._world.resources.id_of(call.target, SNAPSHOT, call.target.name)
        existing = self._world.resources.find(key)
        if existing is not None:
            return answer(existing)
        stored = self._world.resources.put(call.target, SNAPSHOT, call.target.name, copy.deepcopy(call.body))
        size = disk["properties"]["diskSizeGB"]
        stored["location"] = stored["location"].lower()
        stored["properties"] |= {"provisioningState": "Creating", "diskSizeGB": size, "osType": "Linux"}
        self._world.bill.begin(stored, "snapshot", snapshot_usd_per_hour(size))

        async def work() -> None:
            await self._world.clock.sleep(self._world.times.snapshot)
            if late is not None:
                stored["properties"]["provisioningState"] = "Failed"
                raise late
            folder = self._world.folder / "snapshots" / str(uuid.uuid4())
            await self._copy(disk, folder)
            self._contents[key.lower()] = folder
            stored["properties"]["provisioningState"] = "Succeeded"
            self._world.journal.tell("snapshot.made", call.target.name)

        return self._world.operations.accepted(call, stored["location"], work, stored)

    async def _copy(self, disk: Body, folder: Path) -> None:
        owner = self._world.resources.find(disk.get("managedBy", ""))
        if owner is None:
            raise ArmError(
                409, "OperationNotAllowed", f"The disk {disk['name']} belongs to no VM: that is not emulated."
            )
        await self._machines.of(owner).host.copy_disk(folder)

    async def _get(self, call: Call) -> Any:
        await self._world.meet("snapshot.get", call.attributes())
        return answer(self._world.resources.shown(call.target))

    async def _delete(self, call: Call) -> Any:
        await self._world.meet("snapshot.delete", call.attributes())
        key = self._world.resources.id_of(call.target, SNAPSHOT, call.target.name)
        if self._world.resources.drop(key) is None:
            return answer(status=204)
        self._world.bill.end(key)
        folder = self._contents.pop(key.lower(), None)
        if folder is not None:
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
        self._world.journal.tell("snapshot.deleted", call.target.name)
        return answer(status=200)
