"""What clouds rent out: sizes, prices and quotas."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import anyio
from msgspec.structs import asdict

from evalfleet.answers.machines import (
    PriceList,
    PriceRow,
    QuotaList,
    RegionQuota,
    SizeList,
    SizeRow,
)
from evalfleet.config import Settings
from evalfleet.errors import InputError
from evalfleet.layout import Home
from evalfleet.pools.cloud.catalogue import Catalogue
from evalfleet.pools.cloud.protocol import CloudProvider
from evalfleet.pools.cloud.records import Offering
from evalfleet.pools.kinds import registry


class Seller(CloudProvider, Catalogue, Protocol):
    """A cloud whose offers are known."""


def seller(settings: Settings, backend: str | None = None) -> Seller:
    """The named cloud; without a name the first that is set up, else the first that is known. Raises InputError."""
    named = [backend] if backend else registry.names()
    kinds = registry.clouds(skip_broken=True)
    found: list[Seller] = [
        kind.provider for kind in kinds if kind.name in named and isinstance(kind.provider, Catalogue)
    ]
    if not found:
        if backend:
            registry.find(backend)
        raise InputError(f"the sizes and prices of {backend or 'clouds'} are not known here")
    return next((one for one in found if one.is_configured(settings)), found[0])


def sizes(settings: Settings, cloud: Seller, region: str | None) -> SizeList:
    """Its sizes, with the prices on demand in one region."""
    place, known = _region(cloud, region), cloud.prices(Home(settings.home))
    rows: list[SizeRow] = []
    for size in cloud.sizes():
        price = known.find(Offering(size=size.name, region=place))
        rows.append(SizeRow(**asdict(size), usd_per_hour=price.usd_per_hour if price else None))
    return SizeList(region=place, sizes=rows)


def prices(
    settings: Settings,
    cloud: Seller,
    regions: Sequence[str],
    named: Sequence[str],
    *,
    refresh: bool,
    say: Callable[[str], None],
) -> PriceList:
    """Its known prices; with `refresh` as its price list says today."""
    wanted = [cloud.size(size) for size in named] or [size.name for size in cloud.sizes()]
    places, home = list(regions) or list(cloud.default_regions), Home(settings.home)
    if refresh:
        found = cloud.refresh_prices(settings, home, places, wanted)
        say(f"{found} prices read for {', '.join(places)}")
    known = cloud.prices(home)
    rows: list[PriceRow] = []
    for region in places:
        for size in wanted:
            price = known.find(Offering(size=size, region=region))
            spot = known.find(Offering(size=size, region=region, spot=True))
            if price is not None:
                spot_usd = spot.usd_per_hour if spot else None
                rows.append(PriceRow(size=size, region=region, spot_usd_per_hour=spot_usd, **asdict(price)))
    return PriceList(prices=rows)


def quotas(
    settings: Settings, cloud: Seller, size: str | None, regions: Sequence[str], machines: int, *, spot: bool
) -> QuotaList:
    """How many machines of a size fit, and what to ask for where the number that is needed does not."""
    places = list(regions) or list(cloud.default_regions)
    name = cloud.size(size or cloud.default_size)

    async def ask() -> QuotaList:
        found = await cloud.allowances(settings, name, places, spot=spot)
        rows = [
            RegionQuota(
                region=each.region,
                fits=each.fits,
                counters=list(each.counters),
                missing=[cloud.quota_advice(short, each.region) for short in each.missing(machines)],
            )
            for each in found
        ]
        return QuotaList(quotas=rows)

    return anyio.run(ask)


def _region(cloud: Seller, region: str | None) -> str:
    return region or cloud.default_regions[0]
