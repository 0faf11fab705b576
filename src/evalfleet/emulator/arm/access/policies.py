"""Policies of an organisation: what is assigned, and what it forbids."""

from __future__ import annotations

from typing import Any

from evalfleet.azure.account.policies import ALLOWED_LOCATIONS, NO_PUBLIC_IP, NOT_ALLOWED_TYPES
from evalfleet.emulator.arm.protocol import ArmError, Body, Call, Routes, answer
from evalfleet.emulator.arm.resources import IP, VM
from evalfleet.emulator.context import EmulatorContext
from evalfleet.emulator.scenario import Policy

ASSIGNMENTS = "microsoft.authorization/policyassignments"


class Policies:
    """Microsoft.Authorization/policyAssignments."""

    def __init__(self, world: EmulatorContext) -> None:
        self._world = world

    def routes(self) -> Routes:
        return {("GET", ASSIGNMENTS, ""): self._list}

    async def _list(self, call: Call) -> Any:
        await self._world.meet("policies.list", call.attributes())
        return answer({"value": [_shown(each) for each in self._world.scenario.policy]})


def require_policies(world: EmulatorContext, call: Call) -> None:
    """Refuse a VM that an assigned policy forbids."""
    if (call.method, call.target.kind) != ("PUT", VM):
        return
    has_address = "publicIPAddressConfiguration" in str(call.body)
    for policy in world.scenario.policy:
        types = [each.lower() for each in policy.parameters.get("listOfResourceTypesNotAllowed", ())]
        locations = policy.parameters.get("listOfAllowedLocations", ())
        is_forbidden = {
            NO_PUBLIC_IP: has_address,
            NOT_ALLOWED_TYPES: has_address and IP in types,
            ALLOWED_LOCATIONS: str(call.body.get("location")) not in locations,
        }.get(policy.definition, False)
        if is_forbidden:
            said = f"Resource '{call.target.name}' was disallowed by policy. Policy identifiers: '{policy.name}'."
            raise ArmError(403, "RequestDisallowedByPolicy", said)


def _shown(policy: Policy) -> Body:
    definition = f"/providers/Microsoft.Authorization/policyDefinitions/{policy.definition}"
    parameters = {name: {"value": values} for name, values in policy.parameters.items()}
    properties: Body = {"displayName": policy.name, "policyDefinitionId": definition, "parameters": parameters}
    return {"name": policy.name, "properties": {**properties, "enforcementMode": "Default"}}
