"""Quotas: how many cores a region still has for us. A deallocated VM counts as a running one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from evalfleet.azure.sizes import Size
from evalfleet.pools.cloud.problems import MissingQuota

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


def needed(size: Size, workers: int, *, spot: bool = False) -> dict[str, int]:
    """Return the cores that so many workers take from each counter."""
    cores = size.vcpus * workers
    return {SPOT_CORES: cores} if spot else {size.family: cores, REGION_CORES: cores}


def missing(usages: Usages, size: Size, workers: int, *, spot: bool = False) -> list[MissingQuota]:
    """Return every counter that is too low for so many further workers; one that Azure does not name has limit 0."""
    short: list[MissingQuota] = []
    for name, cores in needed(size, workers, spot=spot).items():
        usage = _find(usages, name)
        found = MissingQuota(
            name=name, limit=usage.limit if usage else 0, usage=usage.used if usage else 0, required=cores
        )
        if found.missing:
            short.append(found)
    return short


def most_workers(usages: Usages, size: Size, *, spot: bool = False) -> int:
    """Return how many further workers the quotas allow."""
    free = [usage.free if (usage := _find(usages, name)) else 0 for name in needed(size, 1, spot=spot)]
    return min(free) // size.vcpus


def tightest(usages: Usages, size: Size, *, spot: bool) -> Usage | None:
    """Of the counters that machines of this size use, the one with the least left."""
    rows = [usage for name in needed(size, 1, spot=spot) if (usage := _find(usages, name)) is not None]
    return min(rows, key=lambda usage: usage.free, default=None)


def by_name(rows: Iterable[Usage]) -> dict[str, Usage]:
    return {usage.name: usage for usage in rows}


def _find(usages: Usages, name: str) -> Usage | None:
    # Azure spells families now standardDDSv5Family, now StandardDdsv6Family.
    wanted = name.lower()
    return next((usage for key, usage in usages.items() if key.lower() == wanted), None)
