"""Quotas per region and family. Deallocated VMs count, as they do on Azure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from evalfleet.azure.quota import REGION_CORES, SPOT_CORES
from evalfleet.emulator.arm.protocol import ArmError, Body
from evalfleet.emulator.arm.skus import Skus

DEFAULT_LIMIT = 1000
_LABELS = {REGION_CORES: "Total Regional vCPUs", SPOT_CORES: "Total Regional Low-priority vCPUs"}
_QUOTA = (
    "Operation could not be completed as it results in exceeding approved {name} quota. Additional details - Deployment "
    "Model: Resource Manager, Location: {region}, Current Limit: {limit}, Current Usage: {used}, Additional Required: "
    "{required}, (Minimum) New Limit Required: {wanted}. Submit a request for Quota increase."
)


class Quotas:
    """The limits of each region; what is used is counted from the VMs that are there."""

    def __init__(self, limits: Mapping[str, Mapping[str, int]], skus: Skus) -> None:
        self._skus = skus
        self._limits = {
            region.lower(): {name.lower(): n for name, n in rows.items()} for region, rows in limits.items()
        }

    def limit(self, region: str, name: str) -> int:
        return self._limits.get(region.lower(), {}).get(name.lower(), DEFAULT_LIMIT)

    def admit(self, region: str, size: str, spot: bool, vms: Iterable[Body]) -> None:
        """Refuse a VM that a quota has no place for, in Azure's words."""
        kind = self._skus.find(size)
        used = self._used(region, vms)
        counters = (
            [(SPOT_CORES, "LowPriorityCores")]
            if spot
            else [
                (kind.family, f"{kind.family} Cores"),
                (REGION_CORES, "Total Regional Cores"),
            ]
        )
        for name, label in counters:
            limit, now = self.limit(region, name), used.get(name.lower(), 0)
            if now + kind.vcpus > limit:
                wanted = now + kind.vcpus
                values = {"name": label, "region": region, "limit": limit, "used": now}
                text = _QUOTA.format(**values, required=kind.vcpus, wanted=wanted)
                raise ArmError(409, "OperationNotAllowed", text)

    def usages(self, region: str, vms: Iterable[Body]) -> list[Body]:
        """Return the counters of a region as Azure lists them."""
        used = self._used(region, vms)
        names = [REGION_CORES, SPOT_CORES, *self._skus.families()]
        return [
            {
                "unit": "Count",
                "currentValue": used.get(name.lower(), 0),
                "limit": self.limit(region, name),
                "name": {"value": name, "localizedValue": _LABELS.get(name, f"{name} vCPUs")},
            }
            for name in names
        ]

    def _used(self, region: str, vms: Iterable[Body]) -> dict[str, int]:
        used: dict[str, int] = {}
        for body in vms:
            properties = body["properties"]
            if body["location"] != region.lower() or properties["provisioningState"] == "Failed":
                continue
            kind = self._skus.find(properties["hardwareProfile"]["vmSize"])
            names = [SPOT_CORES] if properties.get("priority") == "Spot" else [kind.family, REGION_CORES]
            for name in names:
                used[name.lower()] = used.get(name.lower(), 0) + kind.vcpus
        return used
