"""The sizes that this cloud sells: those of the package's table, and those that a scenario adds as if they were new."""

from __future__ import annotations

from collections.abc import Sequence

from evalfleet.azure import sizes
from evalfleet.azure.sizes import Size
from evalfleet.azure.skus import size_of
from evalfleet.emulator.arm.protocol import Body
from evalfleet.emulator.bill import SPOT_FACTOR, vm_usd_per_hour
from evalfleet.emulator.scenario import Sku


class Skus:
    """What the SKU API lists, and what it costs."""

    def __init__(self, added: Sequence[Sku]) -> None:
        self._added = {each.name.lower(): each for each in added}

    def sold(self) -> list[Size]:
        return [*sizes.SIZES.values(), *(size_of(_row_of(each)) for each in self._added.values())]

    def known(self, name: str) -> Size | None:
        added = self._added.get(name.lower())
        return sizes.known(name) if added is None else size_of(_row_of(added))

    def find(self, name: str) -> Size:
        return self.known(name) or sizes.find(name)

    def families(self) -> list[str]:
        series = [*sizes.SERIES, *sizes.GPU_SERIES]
        return list(dict.fromkeys([each.family for each in series] + [each.family for each in self._added.values()]))

    def usd_per_hour(self, name: str, region: str, *, spot: bool) -> float:
        added = self._added.get(name.lower())
        if added is None:
            return vm_usd_per_hour(name, region, spot=spot)
        return round(added.usd_per_hour * SPOT_FACTOR, 4) if spot else added.usd_per_hour

    def row(self, size: Size, region: str) -> Body:
        """One row of the SKU API."""
        added = self._added.get(size.name.lower())
        row = _row_of(added) if added else _row(size)
        return {**row, "locations": [region], "locationInfo": [{"location": region, "zones": []}]}

    def added(self) -> list[str]:
        return [each.name for each in self._added.values()]


def _row_of(sku: Sku) -> Body:
    told = {
        "vCPUs": str(sku.vcpus),
        "MemoryGB": f"{sku.memory_gb:g}",
        "HyperVGenerations": sku.generations,
        "MaxResourceVolumeMB": str(sku.temporary_disk_gb * 1024),
        "LowPriorityCapable": "True",
        "PremiumIO": "True",
        "CpuArchitectureType": "Arm64" if sku.arm else "x64",
        **({"GPUs": str(sku.gpus)} if sku.gpus else {}),
    }
    return _shown(sku.name, sku.family, told)


def _row(size: Size) -> Body:
    told = {
        "vCPUs": str(size.vcpus),
        "MemoryGB": f"{size.memory_gb:g}",
        "HyperVGenerations": ",".join(f"V{generation}" for generation in size.series.generations),
        "LowPriorityCapable": "True",
        "PremiumIO": str(size.series.premium),
        "CpuArchitectureType": "x64",
    }
    return _shown(size.name, size.family, told)


def _shown(name: str, family: str, told: dict[str, str]) -> Body:
    return {
        "resourceType": "virtualMachines",
        "name": name,
        "tier": "Standard",
        "size": name.removeprefix("Standard_"),
        "family": family,
        "capabilities": [{"name": key, "value": value} for key, value in told.items()],
        "restrictions": [],
    }
