"""Prices of VMs in dollars an hour: a dated table in the package, and a newer one in the home after a refresh.

The table holds on-demand prices of Linux; spot prices move daily and come with a refresh only. Nothing is guessed:
what is not known is None. The source mixed prices of Windows in among AMD's sizes of version 5: rows that cost more than
Intel's of the same shape in the same region, which Linux never does, are left out.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlencode, urlsplit

from evalfleet.azure.sizes import SIZES
from evalfleet.errors import CloudError, StoreUnwritable
from evalfleet.pools.cloud.catalogue import ListPrice, PriceTable
from evalfleet.pools.cloud.records import Offering

API_VERSION = "2023-01-01-preview"
SIZES_PER_QUERY = 15
PAGES_AT_MOST = 200

# List prices of East US, which move little and are small beside the VM's own.
IP_USD_PER_HOUR = 0.005
_DISK_USD_PER_MONTH = {
    "Premium_LRS": {32: 5.28, 64: 10.21, 128: 19.71, 256: 38.02, 512: 73.22, 1024: 135.17},
    "StandardSSD_LRS": {32: 2.40, 64: 4.80, 128: 9.60, 256: 19.20, 512: 38.40, 1024: 76.80},
}
EGRESS_USD_PER_GB = 0.087  # to the internet, after the first 100 GB of a month
SNAPSHOT_USD_PER_GB_MONTH = 0.05  # of snapshots, and of each replica of an image
HOURS_PER_MONTH = 730


def disk_usd_per_hour(kind: str, size_gb: int) -> float:
    """Return the price of a managed disk, which is billed by the next larger step, in use or not."""
    steps = _DISK_USD_PER_MONTH.get(kind, _DISK_USD_PER_MONTH["Premium_LRS"])
    step = next((gb for gb in sorted(steps) if gb >= size_gb), max(steps))
    return steps[step] / HOURS_PER_MONTH


def snapshot_usd_per_hour(size_gb: int) -> float:
    """Return the price of a copy of a disk. Azure bills what is used of it; the whole size is the most it can be."""
    return SNAPSHOT_USD_PER_GB_MONTH * size_gb / HOURS_PER_MONTH


@cache
def packaged() -> PriceTable:
    """Return the table that came with the package."""
    text = (resources.files("evalfleet.azure") / "prices.json").read_text("utf-8")
    content = json.loads(text)
    rows = {
        Offering(size=size, region=region): ListPrice(usd_per_hour=usd, date=content["date"])
        for region, prices in content["regions"].items()
        for size, usd in zip(content["sizes"], prices, strict=True)
        if usd is not None
    }
    return PriceTable(rows)


def load(path: Path) -> PriceTable:
    """Return the packaged table with the refreshed rows of that file on top; a file that cannot be read is as none."""
    return PriceTable({**packaged().rows, **_stored(path)})


def _stored(path: Path) -> dict[Offering, ListPrice]:
    try:
        rows = cast("list[dict[str, Any]]", json.loads(path.read_text("utf-8"))["rows"])
        return {
            Offering(size=row["size"], region=row["region"], spot=row["spot"]): ListPrice(
                usd_per_hour=float(row["usd_per_hour"]), date=row["date"]
            )
            for row in rows
        }
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def store(path: Path, rows: Mapping[Offering, ListPrice]) -> None:
    """Write refreshed rows over those of the file, in one step. Raises StoreUnwritable where the home cannot be written."""
    merged = {**_stored(path), **rows}
    content = {
        "rows": [
            {"size": offering.size, "region": offering.region, "spot": offering.spot}
            | {"usd_per_hour": price.usd_per_hour, "date": price.date}
            for offering, price in merged.items()
        ]
    }
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps(content), "utf-8")
        os.replace(partial, path)
    except OSError as error:
        raise StoreUnwritable(
            f"{path}: cannot be written: {error.strerror}; free space, or name another --home."
        ) from None


Fetch = Callable[[str], Any]  # address -> parsed JSON


def fetch(url: str) -> Any:
    """Get one page of the price list. Raises CloudError where it does not answer, or not in JSON."""
    from urllib.error import URLError
    from urllib.request import Request, urlopen

    try:
        with urlopen(Request(url, headers={"Accept": "application/json"}), timeout=30) as answer:
            return json.load(answer)
    except (URLError, TimeoutError, ValueError, OSError) as error:
        host = urlsplit(url).netloc
        raise CloudError(
            f"the price list at {host} does not answer ({error}); the prices of {packaged_date()} stay in use."
        ) from None


def packaged_date() -> str:
    return next(iter(packaged().rows.values())).date


def refresh(
    base_url: str, regions: Iterable[str], today: str, *, sizes: Iterable[str] = tuple(SIZES), get: Fetch = fetch
) -> dict[Offering, ListPrice]:
    """Ask the Retail Prices API for the sizes in the regions, on demand and spot. No account is needed.

    Raises CloudError where it does not answer, or its pages do not end.
    """
    rows: dict[Offering, ListPrice] = {}
    wanted = tuple(sizes)
    for region in regions:
        for first in range(0, len(wanted), SIZES_PER_QUERY):
            for item in _items(query_url(base_url, region, wanted[first : first + SIZES_PER_QUERY]), get):
                offering = offering_of(item)
                if offering is not None:
                    rows[offering] = ListPrice(usd_per_hour=float(item["retailPrice"]), date=today)
    return rows


def query_url(base_url: str, region: str, sizes: Iterable[str]) -> str:
    """Return the first page's address; values in the filter must have Azure's own spelling."""
    any_size = " or ".join(f"armSkuName eq '{size}'" for size in sizes)
    terms = f"serviceName eq 'Virtual Machines' and armRegionName eq '{region}' and priceType eq 'Consumption'"
    return f"{base_url}/api/retail/prices?{urlencode({'api-version': API_VERSION, '$filter': f'{terms} and ({any_size})'})}"


def _items(url: str, get: Fetch) -> Iterator[dict[str, Any]]:
    for _ in range(PAGES_AT_MOST):
        page = get(url)
        yield from page["Items"]
        url = page.get("NextPageLink")
        if not url:
            return
    raise CloudError(f"the price list does not end after {PAGES_AT_MOST} pages; try again later.")


def offering_of(item: Mapping[str, Any]) -> Offering | None:
    """Return what a row of the price list prices; None for Windows, Cloud Services, Low Priority and other units."""
    product, names = item["productName"], f"{item['skuName']} {item['meterName']}"
    if item["unitOfMeasure"] != "1 Hour" or "Windows" in product or "Cloud Services" in product:
        return None
    if "Low Priority" in names:
        return None
    return Offering(size=item["armSkuName"], region=item["armRegionName"], spot="Spot" in names)
