"""What clouds rent out: sizes, prices, quotas, and what a run would cost there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import anyio
from msgspec.structs import asdict

from evalfleet.answers.machines import (
    EstimateList,
    PriceList,
    PriceRow,
    QuotaList,
    RegionQuota,
    SizeList,
    SizeRow,
)
from evalfleet.config import Settings
from evalfleet.errors import ConfigError, InputError
from evalfleet.layout import Home
from evalfleet.pools.cloud.catalogue import Allowance, Catalogue
from evalfleet.pools.cloud.estimate import Work, counts, estimate
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


def estimates(
    settings: Settings,
    cloud: Seller,
    work: Work,
    workers: int,
    *,
    size: str | None,
    region: str | None,
    spot: bool,
    usd_per_hour: float | None,
) -> EstimateList:
    """Time and cost of a run for several numbers of workers. The quota is asked for where an account is set up."""
    place, name = _region(cloud, region), cloud.size(size or cloud.default_size)
    known = cloud.prices(Home(settings.home)).find(Offering(size=name, region=place, spot=spot))
    usd = usd_per_hour if usd_per_hour is not None or known is None else known.usd_per_hour
    allowance, advice = None, list[str]()
    try:
        cloud.account(settings)
    except ConfigError as error:
        advice = [f"the quota was not asked for: {error}"]
    else:

        async def ask() -> Allowance:
            return (await cloud.allowances(settings, name, [place], spot=spot))[0]

        allowance = anyio.run(ask)
        advice = [cloud.quota_advice(each, place) for each in allowance.missing(min(workers, work.tasks))]
    return EstimateList(
        tasks=work.tasks,
        size=name,
        region=place,
        spot=spot,
        usd_per_hour=usd,
        price_date=known.date if known is not None and usd_per_hour is None else None,
        estimates=[estimate(work, count, usd, allowance) for count in counts(workers, work.tasks)],
        advice=advice,
    )


def _region(cloud: Seller, region: str | None) -> str:
    return region or cloud.default_regions[0]
