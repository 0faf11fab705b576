"""Quotas: how many cores a region still has for us. A deallocated VM counts as a running one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from evalfleet.answers.machines import QuotaCounter
from evalfleet.azure.sizes import Size
from evalfleet.pools.cloud.catalogue import Allowance

if TYPE_CHECKING:
    from evalfleet.azure.clients import Clients

REGION_CORES = "cores"
SPOT_CORES = "lowPriorityCores"


class Usage(Struct, frozen=True, kw_only=True):
    """One counter of one region."""

    name: str
    label: str
    used: int
    limit: int

    @property
    def free(self) -> int:
        return max(0, self.limit - self.used)


Usages = Mapping[str, Usage]


def names(size: Size, *, spot: bool = False) -> tuple[str, ...]:
    """The counters that machines of this size use, as far as they are known."""
    if spot:
        return (SPOT_CORES,)
    return (size.family, REGION_CORES) if size.family else (REGION_CORES,)


def allowance(usages: Usages, size: Size, region: str, *, spot: bool = False) -> Allowance:
    """What the counters allow; one that Azure does not name has limit 0."""
    found = [(name, _find(usages, name)) for name in names(size, spot=spot)]
    counters = [
        QuotaCounter(
            name=usage.name if usage else name, used=usage.used if usage else 0, limit=usage.limit if usage else 0
        )
        for name, usage in found
    ]
    return Allowance(region=region, cores=size.vcpus, counters=tuple(counters))


def tightest(usages: Usages, size: Size, *, spot: bool) -> Usage | None:
    """Of the counters that machines of this size use, the one with the least left."""
    rows = [usage for name in names(size, spot=spot) if (usage := _find(usages, name)) is not None]
    return min(rows, key=lambda usage: usage.free, default=None)


async def usages(clients: Clients, region: str) -> Mapping[str, Usage]:
    """Ask for the counters of a region."""
    from evalfleet.azure.arm import judged  # brings Azure's libraries

    found: dict[str, Usage] = {}
    async with judged(region):
        async for row in clients.compute.usage.list(region):
            name, label = row.name.value or "", row.name.localized_value or ""
            found[name] = Usage(name=name, label=label, used=row.current_value, limit=row.limit)
    return found


def _find(usages: Usages, name: str) -> Usage | None:
    # Azure spells families now standardDDSv5Family, now StandardDdsv6Family.
    wanted = name.lower()
    return next((usage for key, usage in usages.items() if key.lower() == wanted), None)
