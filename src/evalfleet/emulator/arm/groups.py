"""Resource groups, and lists of resources by tag and type."""

from __future__ import annotations

from typing import Any

from evalfleet.emulator.arm.protocol import ArmError, Call, Routes, answer
from evalfleet.emulator.arm.resources import VM
from evalfleet.emulator.arm.vms import VirtualMachines
from evalfleet.emulator.context import EmulatorContext

_LISTED = ("id", "name", "type", "location", "tags")


class Groups:
    """Microsoft.Resources. A deleted group takes everything in it."""

    def __init__(self, world: EmulatorContext, vms: VirtualMachines) -> None:
        self._world = world
        self._vms = vms

    def routes(self) -> Routes:
        return {
            ("PUT", "groups", ""): self._put,
            ("GET", "groups", ""): self._get,
            ("HEAD", "groups", ""): self._head,
            ("DELETE", "groups", ""): self._delete,
            ("GET", "resources", ""): self._resources,
            ("GET", "subscriptions", ""): self._subscription,
        }

    async def _put(self, call: Call) -> Any:
        await self._world.meet("group.put", call.attributes())
        known = {group["name"].lower() for group in self._world.resources.groups()}
        group = self._world.resources.put_group(call.target, call.body)
        return answer(group, 200 if call.target.group.lower() in known else 201)

    async def _get(self, call: Call) -> Any:
        if not call.target.group:
            return answer({"value": [each for each in self._world.resources.groups() if self._is_seen(each["name"])]})
        return answer(self._world.resources.group(call.target.group))

    def _is_seen(self, group: str) -> bool:
        """A list shows only what one has a role on."""
        roles = self._world.roles
        return roles is None or any(role.scope in ("subscription", group) for role in roles)

    async def _head(self, call: Call) -> Any:
        try:
            self._world.resources.group(call.target.group)
        except ArmError:
            return answer(status=404)
        return answer(status=204)

    async def _delete(self, call: Call) -> Any:
        await self._world.meet("group.delete", call.attributes())
        name = call.target.group
        group = self._world.resources.group(name)

        async def work() -> None:
            for body in self._world.resources.of(VM, name):
                await self._vms.end(body)
            for body in self._world.resources.matching(name, ""):
                self._world.bill.end(body["id"])
                self._world.resources.drop(body["id"])
            self._world.resources.drop_group(name)
            self._world.journal.tell("group.deleted", name)

        response = self._world.operations.accepted(call, group["location"], work)
        del response.headers["Azure-AsyncOperation"]  # Azure sends a Location alone here
        return response

    async def _resources(self, call: Call) -> Any:
        await self._world.meet("resources.list", call.attributes())
        if call.target.group:
            self._world.resources.group(call.target.group)
        found = self._world.resources.matching(call.target.group, call.query.get("$filter", ""))
        return answer({"value": [{key: body[key] for key in _LISTED if key in body} for body in found]})

    async def _subscription(self, call: Call) -> Any:
        name = call.target.subscription
        return answer(
            {
                "id": f"/subscriptions/{name}",
                "subscriptionId": name,
                "displayName": "emulator",
                "state": self._world.scenario.subscription,
            }
        )
