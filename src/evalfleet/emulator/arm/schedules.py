"""Auto-shutdown: Azure's own deadline for a VM, which works without any client."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from evalfleet.emulator.arm.protocol import ArmError, Body, Call, Routes, answer
from evalfleet.emulator.arm.resources import SCHEDULE
from evalfleet.emulator.arm.vms import VirtualMachines
from evalfleet.emulator.context import EmulatorContext


class Schedules:
    """Microsoft.DevTestLab/schedules of the type that stops one VM daily."""

    def __init__(self, world: EmulatorContext, vms: VirtualMachines) -> None:
        self._world = world
        self._vms = vms
        self._version: dict[str, int] = {}

    def routes(self) -> Routes:
        return {
            ("PUT", SCHEDULE, ""): self._put,
            ("GET", SCHEDULE, ""): self._get,
            ("DELETE", SCHEDULE, ""): self._delete,
        }

    async def _put(self, call: Call) -> Any:
        await self._world.meet("schedule.put", call.attributes())
        key = self._world.resources.id_of(call.target, SCHEDULE, call.target.name)
        existed = self._world.resources.find(key)
        if existed is not None and existed["location"] != call.body["location"]:
            said = f"The resource '{existed['name']}' already exists in location '{existed['location']}'."
            raise ArmError(409, "InvalidResourceLocation", said)
        properties = call.body["properties"]
        if properties.get("taskType") != "ComputeVmShutdownTask" or properties.get("timeZoneId") != "UTC":
            raise ArmError(400, "InvalidParameter", "Only ComputeVmShutdownTask in UTC is emulated.")
        if self._world.resources.find(properties["targetResourceId"]) is None:
            raise ArmError(400, "InvalidResourceReference", f"{properties['targetResourceId']} was not found.")
        stored = self._world.resources.put(call.target, SCHEDULE, call.target.name, call.body)
        stored["properties"]["provisioningState"] = "Succeeded"
        version = self._version[key.lower()] = self._version.get(key.lower(), 0) + 1
        self._world.tasks.start_soon(self._keep, stored, version)
        self._world.journal.tell("schedule.put", call.target.name, time=properties["dailyRecurrence"]["time"])
        return answer(stored, 200 if existed else 201)

    async def _get(self, call: Call) -> Any:
        await self._world.meet("schedule.get", call.attributes())
        return answer(self._world.resources.shown(call.target))

    async def _delete(self, call: Call) -> Any:
        key = self._world.resources.id_of(call.target, SCHEDULE, call.target.name)
        self._version.pop(key.lower(), None)
        return answer(status=200 if self._world.resources.drop(key) else 204)

    async def _keep(self, schedule: Body, version: int) -> None:
        """Stop the VM at its minute, day after day, until the schedule is changed or gone."""
        key = schedule["id"].lower()
        while True:
            ahead_s = self._world.scenario.clock_ahead
            due = next_moment(schedule["properties"]["dailyRecurrence"]["time"], self._world.clock.now() + ahead_s)
            await self._world.clock.until(due - ahead_s)
            if self._version.get(key) != version or schedule["properties"].get("status") != "Enabled":
                return
            self._world.journal.tell("schedule.due", schedule["name"])
            vm = self._world.resources.find(schedule["properties"]["targetResourceId"])
            if vm is not None:
                await self._vms.switch_off(vm)


def next_moment(time: str, now: float) -> float:
    """Return the next moment with that HHMM of the day, in UTC."""
    day = datetime.fromtimestamp(now, UTC)
    due = day.replace(hour=int(time[:2]), minute=int(time[2:]), second=0, microsecond=0)
    return (due if due > day else due + timedelta(days=1)).timestamp()
