"""Batch accounts as Resource Manager shows them, with the limits that nodes are counted against."""

from __future__ import annotations

from typing import Any

from evalfleet.azure.responses import inside
from evalfleet.emulator.arm.protocol import ArmError, Body, Call, Routes, answer, not_found
from evalfleet.emulator.batch.records import Account
from evalfleet.emulator.context import EmulatorContext

KIND = "microsoft.batch/batchaccounts"
TYPE = "Microsoft.Batch/batchAccounts"
PREFIX = "/batch"  # below it the data plane of each account has its address here


class Accounts:
    """Microsoft.Batch/batchAccounts. Those that the scenario names are there, whatever the resource group is called."""

    def __init__(self, world: EmulatorContext) -> None:
        self._world = world
        self._known: dict[str, Account] = {}
        for each in world.scenario.batch:
            self._known[each.name] = Account(
                each.name, each.region, each.dedicated_cores, each.low_priority_cores, each.allocation_mode
            )

    def routes(self) -> Routes:
        return {
            ("PUT", KIND, ""): self._put,
            ("GET", KIND, ""): self._get,
            ("DELETE", KIND, ""): self._delete,
        }

    def all(self) -> list[Account]:
        return list(self._known.values())

    def find(self, name: str) -> Account | None:
        return self._known.get(name)

    async def _put(self, call: Call) -> Any:
        await self._world.meet("batch.account.put", call.attributes())
        self._world.resources.open_group(call.target.group)
        name = call.target.name
        if not (3 <= len(name) <= 24 and name.isalnum() and name == name.lower()):
            raise ArmError(400, "InvalidAccountName", "The account name must have 3 to 24 small letters and digits.")
        known = self._known.get(name)
        if known is None:
            mode = inside(call.body, "properties", "poolAllocationMode") or "BatchService"
            limits = self._world.scenario.new_batch_cores
            known = self._known[name] = Account(name, call.body["location"].lower(), limits, limits, mode)
        known.body = {"tags": call.body.get("tags") or {}, "properties": call.body.get("properties") or {}}
        return answer(self._shown(call, known))

    async def _get(self, call: Call) -> Any:
        await self._world.meet("batch.account.get", call.attributes())
        if not call.target.name:
            return answer({"value": [self._shown(call, each) for each in self.all()]})
        known = self.find(call.target.name)
        if known is None:
            raise not_found(TYPE, call.target.name, call.target.group)
        return answer(self._shown(call, known))

    async def _delete(self, call: Call) -> Any:
        known = self.find(call.target.name)
        if known is None:
            return answer(status=204)
        if known.pools or known.jobs:
            raise ArmError(409, "AccountIsNotEmpty", "The account has pools or jobs.")
        del self._known[known.name]
        return answer(status=200)

    def _shown(self, call: Call, account: Account) -> Body:
        group, subscription = call.target.group or "evalfleet", call.target.subscription
        place = self._world.base_url.partition("://")[2]
        return {
            "id": f"/subscriptions/{subscription}/resourceGroups/{group}/providers/{TYPE}/{account.name}",
            "name": account.name,
            "type": TYPE,
            "location": account.region,
            "tags": account.body.get("tags") or {},
            "properties": {
                "accountEndpoint": f"{place}{PREFIX}/{account.name}",
                "provisioningState": "Succeeded",
                "poolAllocationMode": account.allocation_mode,
                "publicNetworkAccess": "Enabled",
                "dedicatedCoreQuota": account.dedicated_cores,
                "dedicatedCoreQuotaPerVMFamily": [],
                "dedicatedCoreQuotaPerVMFamilyEnforced": False,
                "lowPriorityCoreQuota": account.low_priority_cores,
                "poolQuota": 100,
                "activeJobAndJobScheduleQuota": 300,
                "allowedAuthenticationModes": ["AAD"],
            },
        }
