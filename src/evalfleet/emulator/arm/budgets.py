"""Budgets: Azure notifies people when a group's tagged resources have cost so much. Here they are kept, and nobody is told."""

from __future__ import annotations

import uuid
from typing import Any

from evalfleet.emulator.arm.protocol import ArmError, Call, Routes, answer
from evalfleet.emulator.arm.resources import BUDGET
from evalfleet.emulator.context import EmulatorContext


class Budgets:
    """Microsoft.Consumption/budgets of resource groups."""

    def __init__(self, world: EmulatorContext) -> None:
        self._world = world

    def routes(self) -> Routes:
        return {
            ("PUT", BUDGET, ""): self._put,
            ("GET", BUDGET, ""): self._get,
            ("DELETE", BUDGET, ""): self._delete,
        }

    async def _put(self, call: Call) -> Any:
        await self._world.meet("budget.put", call.attributes())
        known = self._world.resources.find(self._world.resources.id_of(call.target, BUDGET, call.target.name))
        properties = call.body["properties"]
        if properties["amount"] <= 0:
            raise ArmError(400, "400", "Invalid budget configuration: the amount must be above 0.")
        if not properties["timePeriod"]["startDate"].endswith("-01T00:00:00Z"):
            raise ArmError(400, "400", "Invalid budget configuration: the start date must be the first of a month.")
        if known is not None and call.body.get("eTag") != known["eTag"]:
            raise ArmError(409, "409", "Budget was changed by another request: the eTag does not match.")
        stored = self._world.resources.put(call.target, BUDGET, call.target.name, {**call.body, "eTag": _tag()})
        stored["properties"] = {**properties, "currentSpend": {"amount": 0.0, "unit": "USD"}}
        self._world.journal.tell("budget.put", call.target.name, usd=properties["amount"])
        return answer(stored, 200 if known else 201)

    async def _get(self, call: Call) -> Any:
        await self._world.meet("budget.get", call.attributes())
        return answer(self._world.resources.shown(call.target))

    async def _delete(self, call: Call) -> Any:
        await self._world.meet("budget.delete", call.attributes())
        known = self._world.resources.drop(self._world.resources.id_of(call.target, BUDGET, call.target.name))
        if known is None:
            raise ArmError(404, "404", "Budget not found.")
        self._world.journal.tell("budget.deleted", call.target.name)
        return answer(status=200)


def _tag() -> str:
    return f'"{uuid.uuid4().hex[:16]}"'
