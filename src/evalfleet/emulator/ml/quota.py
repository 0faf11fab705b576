"""Quotas of Azure ML: counters of their own, beside those of VMs."""

from __future__ import annotations

import re
from collections.abc import Iterable

from evalfleet.emulator.arm.protocol import ArmError, Body
from evalfleet.emulator.context import EmulatorContext
from evalfleet.emulator.ml.node import Node

DEDICATED = "Total Cluster Dedicated Regional vCPUs"
LOW_PRIORITY = "Total Cluster LowPriority Regional vCPUs"
_FAMILY = re.compile(r"standard(.+)family", re.IGNORECASE)


def family_counter(family: str) -> str:
    """How Azure ML names the counter of a family, such as standardDDSv5Family."""
    found = _FAMILY.fullmatch(family.replace(" ", ""))
    return f"Standard {found[1] if found else family} Family Cluster Dedicated vCPUs"


class MlQuota:
    """The limits are the scenario's; what is used is counted from the nodes that are there."""

    def __init__(self, world: EmulatorContext) -> None:
        self._world = world

    def admit(self, region: str, size: str, nodes: Iterable[Node], *, spot: bool) -> None:
        """Refuse a node that a counter has no place for. Raises ArmError."""
        cores, counters = self._world.skus.find(size).vcpus, self._counters(size, spot=spot)
        for usage in self.usages(region, nodes):
            name, limit, used = usage["name"]["value"], usage["limit"], usage["currentValue"]
            if name in counters and used + cores > limit:
                said = (
                    f"The cluster has exceeded its quota of {name}. Current limit: {limit}, current usage: {used}, "
                    f"additional required: {cores}."
                )
                raise ArmError(409, "ClusterCoreQuotaReached", said)

    def usages(self, region: str, nodes: Iterable[Node]) -> list[Body]:
        """The counters of a region as Azure lists them."""
        used: dict[str, int] = {}
        for node in nodes:
            if node.body["location"] == region.lower():
                for name in self._counters(node.size, spot=node.spot):
                    used[name] = used.get(name, 0) + self._world.skus.find(node.size).vcpus
        names = [DEDICATED, LOW_PRIORITY, *map(family_counter, self._world.skus.families())]
        return [
            {
                "id": f"/usages/{name.replace(' ', '_')}",
                "type": "Microsoft.MachineLearningServices/vmFamily/usages",
                "unit": "Count",
                "currentValue": used.get(name, 0),
                "limit": self._world.quotas.limit(region, name),
                "name": {"value": name, "localizedValue": name},
            }
            for name in dict.fromkeys(names)
        ]

    def _counters(self, size: str, *, spot: bool) -> tuple[str, ...]:
        return (LOW_PRIORITY,) if spot else (family_counter(self._world.skus.find(size).family), DEDICATED)
