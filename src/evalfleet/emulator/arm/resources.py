"""All resources by their ids, whatever their type."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from evalfleet.emulator.arm.protocol import ArmError, Body, Target, not_found
from evalfleet.emulator.clock import Clock

VM = "microsoft.compute/virtualmachines"
DISK = "microsoft.compute/disks"
NIC = "microsoft.network/networkinterfaces"
IP = "microsoft.network/publicipaddresses"
VNET = "microsoft.network/virtualnetworks"
NSG = "microsoft.network/networksecuritygroups"
SNAPSHOT = "microsoft.compute/snapshots"
GALLERY = "microsoft.compute/galleries"
IMAGE = "microsoft.compute/galleries/images"
VERSION = "microsoft.compute/galleries/images/versions"
SCHEDULE = "microsoft.devtestlab/schedules"
BUDGET = "microsoft.consumption/budgets"
ML_WORKSPACE = "microsoft.machinelearningservices/workspaces"
ML_COMPUTE = f"{ML_WORKSPACE}/computes"
ML_ENVIRONMENT = f"{ML_WORKSPACE}/environments/versions"
ML_JOB = f"{ML_WORKSPACE}/jobs"

# How Azure spells what we keep in lower case.
SPELLING = {
    VM: "Microsoft.Compute/virtualMachines",
    DISK: "Microsoft.Compute/disks",
    NIC: "Microsoft.Network/networkInterfaces",
    IP: "Microsoft.Network/publicIPAddresses",
    VNET: "Microsoft.Network/virtualNetworks",
    NSG: "Microsoft.Network/networkSecurityGroups",
    SNAPSHOT: "Microsoft.Compute/snapshots",
    GALLERY: "Microsoft.Compute/galleries",
    IMAGE: "Microsoft.Compute/galleries/images",
    VERSION: "Microsoft.Compute/galleries/images/versions",
    SCHEDULE: "Microsoft.DevTestLab/schedules",
    BUDGET: "Microsoft.Consumption/budgets",
    ML_COMPUTE: "Microsoft.MachineLearningServices/workspaces/computes",
    ML_ENVIRONMENT: "Microsoft.MachineLearningServices/workspaces/environments/versions",
    ML_JOB: "Microsoft.MachineLearningServices/workspaces/jobs",
}
_INNER = {SPELLING[kind] for kind in (ML_COMPUTE, ML_ENVIRONMENT, ML_JOB)}  # in no list of a group's resources
_TERM = re.compile(r"(tagName|tagValue|resourceType) eq '([^']*)'")


class Resources:
    """Bodies by id. An id is kept as it was first written, and found in any case."""

    def __init__(self, clock: Clock, group_lag_s: float = 0.0) -> None:
        """
        Args:
            group_lag_s: so long nothing can be made in a new group, as if it were not there.
        """
        self._clock = clock
        self._group_lag_s = clock.real(group_lag_s) if clock.speed else group_lag_s
        self._bodies: dict[str, Body] = {}
        self._groups: dict[str, Body] = {}
        self._grouped_at: dict[str, float] = {}

    # Groups

    def put_group(self, target: Target, body: Body) -> Body:
        name = target.group
        self._grouped_at.setdefault(name.lower(), self._clock.now())
        group = self._groups.setdefault(
            name.lower(),
            {
                "id": f"/subscriptions/{target.subscription}/resourceGroups/{name}",
                "name": name,
                "type": "Microsoft.Resources/resourceGroups",
                "location": body["location"],
                "properties": {"provisioningState": "Succeeded"},
            },
        )
        group["tags"] = body.get("tags") or {}
        return group

    def group(self, name: str) -> Body:
        found = self._groups.get(name.lower())
        if found is None:
            raise _no_group(name)
        return found

    def open_group(self, name: str) -> Body:
        """The group, if things can be made in it already."""
        found = self.group(name)
        if self._clock.now() - self._grouped_at[name.lower()] < self._group_lag_s:
            raise _no_group(name)
        return found

    def groups(self) -> list[Body]:
        return list(self._groups.values())

    def drop_group(self, name: str) -> None:
        self._groups.pop(name.lower(), None)
        self._grouped_at.pop(name.lower(), None)

    # Resources

    def id_of(self, target: Target, kind: str, name: str) -> str:
        space, *types = SPELLING[kind].split("/")
        path = "/".join(f"{type_name}/{part}" for type_name, part in zip(types, name.split("/"), strict=True))
        return f"/subscriptions/{target.subscription}/resourceGroups/{target.group}/providers/{space}/{path}"

    def put(self, target: Target, kind: str, name: str, body: Body) -> Body:
        """Store a resource under its id; the group must be there."""
        self.open_group(target.group)
        key = self.id_of(target, kind, name)
        stored = {"id": key, "name": name.rpartition("/")[2], "type": SPELLING[kind], **body}
        self._bodies[key.lower()] = stored
        return stored

    def find(self, id: str) -> Body | None:
        return self._bodies.get(id.lower())

    def get(self, target: Target) -> Body:
        """Return the resource that a path speaks of."""
        found = self.find(self.id_of(target, target.kind, target.name))
        if found is None:
            self.group(target.group)
            raise not_found(SPELLING[target.kind], target.name, target.group)
        return found

    def shown(self, target: Target) -> Body:
        """Return the resource that a path speaks of, or all of its type where it names none."""
        return self.get(target) if target.name else {"value": self.listed(target.kind, target.group)}

    def drop(self, id: str) -> Body | None:
        return self._bodies.pop(id.lower(), None)

    def of(self, kind: str, group: str = "") -> list[Body]:
        """Return all of a type, of one group or of all."""
        wanted = SPELLING[kind]
        return [body for body in self if body["type"] == wanted and (not group or group_of(body) == group.lower())]

    def listed(self, kind: str, group: str) -> list[Body]:
        """The list of a type; one of a group that is not there is refused."""
        if group:
            self.group(group)
        return self.of(kind, group)

    def __iter__(self) -> Iterator[Body]:
        return iter(list(self._bodies.values()))

    def matching(self, group: str, query: str) -> list[Body]:
        """Return the resources that a `$filter` by tag or type names."""
        terms: dict[str, str] = dict(_TERM.findall(query))
        found: list[Body] = []
        for body in self:
            tags: dict[str, Any] = body.get("tags") or {}
            if body["type"] in _INNER:
                continue
            if group and group_of(body) != group.lower():
                continue
            if "tagName" in terms and terms["tagName"] not in tags:
                continue
            if "tagValue" in terms and tags.get(terms.get("tagName", "")) != terms["tagValue"]:
                continue
            if "resourceType" in terms and body["type"].lower() != terms["resourceType"].lower():
                continue
            found.append(body)
        return found


def _no_group(name: str) -> ArmError:
    return ArmError(404, "ResourceGroupNotFound", f"Resource group '{name}' could not be found.")


def group_of(body: Body) -> str:
    return str(body["id"]).split("/")[4].lower()
