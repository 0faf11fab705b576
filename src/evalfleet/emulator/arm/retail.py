"""The public price list: on demand from the packaged table, spot made up, and the rows that a reader must leave out."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlencode

from aiohttp import web

from evalfleet.azure import prices
from evalfleet.emulator.context import EmulatorContext
from evalfleet.pools.cloud.records import Offering

PAGE = 100
_TERM = re.compile(r"(\w+) eq '([^']*)'")


class Retail:
    """`/api/retail/prices`: no account, values of the filter in exact spelling, pages of 100."""

    def __init__(self, world: EmulatorContext) -> None:
        self._world = world

    def routes(self) -> list[web.RouteDef]:
        return [web.get("/api/retail/prices", self._list)]

    async def _list(self, request: web.Request) -> web.Response:
        await self._world.meet("prices.list", {})
        wanted: dict[str, set[str]] = {}
        for name, value in _TERM.findall(request.query.get("$filter", "")):
            wanted.setdefault(name, set()).add(value)
        rows = [row for row in self._rows(wanted.get("armRegionName"), wanted.get("armSkuName")) if _fits(row, wanted)]
        skip = int(request.query.get("$skip", "0"))
        page: dict[str, Any] = {"BillingCurrency": "USD", "Items": rows[skip : skip + PAGE], "NextPageLink": None}
        page["Count"] = len(page["Items"])
        if skip + PAGE < len(rows):
            query = {**request.query, "$skip": str(skip + PAGE)}
            page["NextPageLink"] = f"{self._world.base_url}/api/retail/prices?{urlencode(query)}"
        return web.json_response(page)

    def _rows(self, regions: set[str] | None, sizes: set[str] | None) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        priced, skus = prices.packaged(), self._world.skus
        added = [Offering(size=name, region=region) for region in priced.regions() for name in skus.added()]
        for offering in (*priced.rows, *added):
            if (regions and offering.region not in regions) or (sizes and offering.size not in sizes):
                continue
            name = offering.size.removeprefix("Standard_").replace("_", " ")
            usd = skus.usd_per_hour(offering.size, offering.region, spot=False)
            spot = skus.usd_per_hour(offering.size, offering.region, spot=True)
            for label, windows, price in (
                ("", False, usd),
                (" Spot", False, spot),
                (" Low Priority", False, spot),
                ("", True, usd * 1.8),
            ):
                rows.append(_row(offering.size, offering.region, name + label, price, windows=windows))
        return rows


def _row(size: str, region: str, name: str, price: float, *, windows: bool) -> dict[str, Any]:
    return {
        "currencyCode": "USD",
        "retailPrice": price,
        "unitPrice": price,
        "armRegionName": region,
        "armSkuName": size,
        "meterName": name,
        "skuName": name,
        "productName": "Virtual Machines Series" + (" Windows" if windows else ""),
        "serviceName": "Virtual Machines",
        "unitOfMeasure": "1 Hour",
        "type": "Consumption",
        "isPrimaryMeterRegion": True,
    }


def _fits(row: dict[str, Any], wanted: dict[str, set[str]]) -> bool:
    names = {"priceType": "type"}
    return all(row.get(names.get(name, name)) in values for name, values in wanted.items())
