"""The rest of Microsoft.Compute: disks, quotas and sizes."""

from __future__ import annotations

from typing import Any

from evalfleet.azure import prices
from evalfleet.azure.sizes import Size
from evalfleet.emulator.arm.protocol import ArmError, Body, Call, Routes, answer
from evalfleet.emulator.arm.resources import DISK, VM
from evalfleet.emulator.context import EmulatorContext


class Compute:
    """Disks that VMs leave behind, and what a subscription may have."""

    def __init__(self, world: EmulatorContext) -> None:
        self._world = world

    def routes(self) -> Routes:
        return {
            ("GET", DISK, ""): self._disks,
            ("DELETE", DISK, ""): self._delete_disk,
            ("GET", "microsoft.compute/locations", "usages"): self._usages,
            ("GET", "microsoft.compute/skus", ""): self._skus,
        }

    async def _disks(self, call: Call) -> Any:
        return answer(self._world.resources.shown(call.target))

    async def _delete_disk(self, call: Call) -> Any:
        disk = self._world.resources.find(self._world.resources.id_of(call.target, DISK, call.target.name))
        if disk is None:
            return answer(status=204)
        if "managedBy" in disk:
            said = f"Disk {call.target.name} is attached to VM {disk['managedBy']}."
            raise ArmError(409, "OperationNotAllowed", said)
        self._world.bill.end(disk["id"])
        self._world.resources.drop(disk["id"])
        self._world.journal.tell("disk.deleted", call.target.name)
        return answer(status=200)

    async def _usages(self, call: Call) -> Any:
        await self._world.meet("usages.list", call.attributes())
        rows = self._world.quotas.usages(call.target.location, self._world.resources.of(VM))
        return answer({"value": rows})

    async def _skus(self, call: Call) -> Any:
        await self._world.meet("skus.list", call.attributes())
        wanted = call.query.get("$filter", "")
        regions = [region for region in prices.packaged().regions() if not wanted or f"'{region}'" in wanted]
        return answer({"value": [self._sku(size, region) for region in regions for size in self._world.skus.sold()]})

    def _sku(self, size: Size, region: str) -> Body:
        found = self._world.skus.row(size, region)
        if size.name in self._world.scenario.restricted.get(region, ()):
            found["restrictions"] = [
                {"type": "Location", "values": [region], "reasonCode": "NotAvailableForSubscription"}
            ]
        return found
