"""What a cloud rents out: sizes, their prices, and how many machines the account may have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

from msgspec import Struct

from evalfleet.answers.machines import MissingQuota, QuotaCounter, SizeFacts
from evalfleet.config import Settings
from evalfleet.layout import Home
from evalfleet.pools.cloud.records import Offering


class ListPrice(Struct, frozen=True, kw_only=True):
    usd_per_hour: float
    date: str  # the day it was read


class PriceTable(Struct, frozen=True):
    """Known prices."""

    rows: Mapping[Offering, ListPrice]

    def find(self, offering: Offering) -> ListPrice | None:
        return self.rows.get(offering)

    def regions(self) -> list[str]:
        return sorted({offering.region for offering in self.rows})


class Allowance(Struct, frozen=True, kw_only=True):
    """How many machines of one size an account may have in one region."""

    region: str
    cores: int  # that a machine takes from each counter
    counters: tuple[QuotaCounter, ...]

    @property
    def fits(self) -> int:
        """Further machines that the quotas allow."""
        return min(max(0, each.limit - each.used) for each in self.counters) // self.cores

    def missing(self, machines: int) -> tuple[MissingQuota, ...]:
        """Every counter that is too low for that many further machines."""
        needed = self.cores * machines
        asked = [MissingQuota(name=c.name, limit=c.limit, usage=c.used, required=needed) for c in self.counters]
        return tuple(each for each in asked if each.missing)


@runtime_checkable
class Catalogue(Protocol):
    """What a `CloudProvider` has besides, if the commands `sizes`, `prices`, `quota` and `plan` can show its offers."""

    def sizes(self) -> Sequence[SizeFacts]: ...

    def prices(self, home: Home) -> PriceTable: ...

    def refresh_prices(self, settings: Settings, home: Home, regions: Sequence[str], sizes: Sequence[str]) -> int:
        """Fetch the price list into the home. Returns how many prices were read. Raises CloudError."""
        ...

    async def allowances(self, settings: Settings, size: str, regions: Sequence[str], *, spot: bool) -> list[Allowance]:
        """Ask for the quotas of the regions. Raises ConfigError where no account is set up, and CloudError."""
        ...

    def quota_advice(self, missing: MissingQuota, region: str) -> str:
        """Say what is missing, and how to ask for more."""
        ...


@runtime_checkable
class SideCosts(Protocol):
    """What a `Catalogue` has besides, if more is charged for than the time of machines: plans count it, too."""

    @property
    def egress_usd_per_gb(self) -> float:
        """Of what leaves a region."""
        ...

    def kept_usd_per_hour(self, size: str, disk_gb: int) -> float:
        """Disk and address of a machine, as long as it exists."""
        ...

    def image_usd_per_hour(self, disk_gb: int) -> float:
        """A golden image of that size, in one region."""
        ...
