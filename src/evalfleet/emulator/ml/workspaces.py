"""Workspaces of Azure Machine Learning, and their environments."""

from __future__ import annotations

import uuid
from typing import Any

from evalfleet.emulator.arm.protocol import ArmError, Body, Call, Routes, answer, not_found
from evalfleet.emulator.arm.resources import ML_ENVIRONMENT, ML_WORKSPACE, SPELLING
from evalfleet.emulator.context import EmulatorContext

SPACE = "microsoft.machinelearningservices"
_TYPE = "Microsoft.MachineLearningServices/workspaces"


class Workspaces:
    """Those of the scenario are there from the start, in any group: on Azure a workspace is made once, by a person."""

    def __init__(self, world: EmulatorContext) -> None:
        self._world = world
        self._known: dict[str, Body] = {name.lower(): {"location": "eastus"} for name in world.scenario.workspaces}
        self._environments: dict[str, Body] = {}  # by id in lower case

    def routes(self) -> Routes:
        return {
            ("GET", ML_WORKSPACE, ""): self._get,
            ("PUT", ML_WORKSPACE, ""): self._put,
            ("DELETE", ML_WORKSPACE, ""): self._delete,
            ("PUT", ML_ENVIRONMENT, ""): self._put_environment,
            ("GET", ML_ENVIRONMENT, ""): self._get_environment,
            ("DELETE", ML_ENVIRONMENT, ""): self._delete_environment,
        }

    def require(self, call: Call) -> None:
        """Refuse a request to a workspace that is not there."""
        name = call.target.name.partition("/")[0]
        if name.lower() not in self._known:
            raise not_found(_TYPE, name, call.target.group)
        if not any(group["name"].lower() == call.target.group.lower() for group in self._world.resources.groups()):
            self._world.resources.put_group(call.target, {"location": "eastus"})  # it is there with its workspace

    async def _get(self, call: Call) -> Any:
        await self._world.meet("ml.workspace.get", call.attributes())
        if not call.target.name:
            return answer({"value": [self._shown(call, name) for name in self._known]})
        self.require(call)
        return answer(self._shown(call, call.target.name))

    async def _put(self, call: Call) -> Any:
        await self._world.meet("ml.workspace.put", call.attributes())
        self._known[call.target.name.lower()] = {"location": call.body["location"], "tags": call.body.get("tags") or {}}
        return answer(self._shown(call, call.target.name))

    async def _delete(self, call: Call) -> Any:
        await self._world.meet("ml.workspace.delete", call.attributes())
        there = self._known.pop(call.target.name.lower(), None) is not None
        return answer(status=200 if there else 204)

    def _shown(self, call: Call, name: str) -> Body:
        body, target = self._known[name.lower()], call.target
        workspace_id = f"/subscriptions/{target.subscription}/resourceGroups/{target.group}/providers/{_TYPE}/{name}"
        region = body["location"]
        return {
            **body,
            "id": workspace_id,
            "name": name,
            "type": _TYPE,
            "properties": {
                "friendlyName": name,
                "workspaceId": str(uuid.uuid5(uuid.NAMESPACE_URL, workspace_id)),
                "provisioningState": "Succeeded",
                "discoveryUrl": f"{self._world.base_url}/discovery",
                "mlFlowTrackingUri": f"azureml://{region}.api.azureml.ms/mlflow/v1.0{workspace_id}",
            },
        }

    # Environments

    async def _put_environment(self, call: Call) -> Any:
        self.require(call)
        await self._world.meet("ml.environment.put", call.attributes())
        key = self._world.resources.id_of(call.target, ML_ENVIRONMENT, call.target.name)
        known = self._environments.get(key.lower())
        if known is not None and known["properties"].get("image") != call.body["properties"].get("image"):
            raise ArmError(
                409, "UserError", f"The environment version {call.target.name} exists, and cannot be changed."
            )
        stored = self._world.resources.put(call.target, ML_ENVIRONMENT, call.target.name, {**call.body})
        stored["properties"] = {
            **stored["properties"],
            "environmentType": "UserCreated",
            "provisioningState": "Succeeded",
        }
        self._environments[key.lower()] = stored
        return answer(stored, 201 if known is None else 200)

    async def _get_environment(self, call: Call) -> Any:
        self.require(call)
        await self._world.meet("ml.environment.get", call.attributes())
        if call.target.name.count("/") < 2:
            workspace, _, name = call.target.name.lower().partition("/")
            inner = f"/workspaces/{workspace}/environments/{name}/versions/"
            return answer({"value": [body for key, body in self._environments.items() if inner in key]})
        return answer(self.environment(self._world.resources.id_of(call.target, ML_ENVIRONMENT, call.target.name)))

    async def _delete_environment(self, call: Call) -> Any:
        self.require(call)
        await self._world.meet("ml.environment.delete", call.attributes())
        key = self._world.resources.id_of(call.target, ML_ENVIRONMENT, call.target.name)
        there = self._environments.pop(key.lower(), None) is not None
        self._world.resources.drop(key)
        return answer(status=200 if there else 204)

    def environment(self, version_id: str) -> Body:
        found = self._environments.get(version_id.lower())
        if found is None:
            raise not_found(SPELLING[ML_ENVIRONMENT], version_id.rpartition("/environments/")[2], "")
        return found
