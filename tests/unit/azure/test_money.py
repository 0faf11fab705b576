"""Prices, quotas, and the commands that show them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from evalfleet.azure import prices, quota, sizes
from evalfleet.azure.quota import Usage
from evalfleet.cli import main as entry
from evalfleet.errors import CloudError
from evalfleet.pools.cloud.catalogue import ListPrice
from evalfleet.pools.cloud.records import Offering

D8 = sizes.find("Standard_D8ds_v5")
EAST = Offering(size=D8.name, region="eastus")
SOURCE = Path(__file__).parents[4] / "shared" / "data" / "azure" / "ondemand_prices_DE.json"


def test_the_packaged_table_has_every_size_and_its_date():
    table = prices.packaged()
    unknown = {size for size in sizes.SIZES if table.find(Offering(size=size, region="eastus")) is None}
    assert unknown == {f"Standard_D{name}_v5" for name in ("2as", "2ads", "16ads", "32ads")}
    assert table.find(EAST) == ListPrice(usd_per_hour=0.452, date="2026-06-18")
    assert len(table.regions()) > 50


def test_no_price_is_that_of_windows():
    """With Windows a machine costs nearly twice as much. AMD's sizes are cheaper than Intel's of the same shape."""
    table = prices.packaged()
    for offering, price in table.rows.items():
        for amd, intel in (("ads_v5", "ds_v5"), ("as_v5", "s_v5"), ("as_v4", "s_v4")):
            if offering.size.endswith(amd):
                other = table.find(Offering(size=offering.size.removesuffix(amd) + intel, region=offering.region))
                assert other is not None, offering
                assert price.usd_per_hour <= other.usd_per_hour * 1.1, offering
    # Within a series the price follows the number of processors.
    for series in sizes.SERIES:
        for region in table.regions():
            found = [table.find(Offering(size=series.pattern.format(n), region=region)) for n in sizes.VCPUS]
            each = [price.usd_per_hour / n for n, price in zip(sizes.VCPUS, found, strict=True) if price]
            assert max(each, default=1.0) <= 1.1 * min(each, default=1.0), (series.pattern, region)


@pytest.mark.skipif(not SOURCE.exists(), reason="the recorded prices are not here")
def test_the_packaged_table_is_the_recorded_one():
    recorded = json.loads(SOURCE.read_text())["regions"]
    wrong = [o for o, price in prices.packaged().rows.items() if recorded[o.region][o.size] != price.usd_per_hour]
    assert wrong == []


def item(**changes: Any) -> dict[str, Any]:
    row = {
        "retailPrice": 0.5,
        "armRegionName": "eastus",
        "armSkuName": D8.name,
        "meterName": "D8ds v5",
        "skuName": "D8ds v5",
        "productName": "Virtual Machines Ddsv5 Series",
        "unitOfMeasure": "1 Hour",
    }
    return row | changes


@pytest.mark.parametrize(
    ("row", "wanted"),
    [
        (item(), EAST),
        (item(skuName="D8ds v5 Spot"), Offering(size=D8.name, region="eastus", spot=True)),
        (item(meterName="D8ds v5 Low Priority"), None),
        (item(productName="Virtual Machines Ddsv5 Series Windows"), None),
        (item(productName="Ddsv5 Series Cloud Services"), None),
        (item(unitOfMeasure="1/Month"), None),
    ],
)
def test_which_rows_of_the_price_list_count(row: dict[str, Any], wanted: Offering | None):
    assert prices.offering_of(row) == wanted


def test_refresh_follows_the_pages_and_is_kept(tmp_path: Path):
    pages = {"first": {"Items": [item()], "NextPageLink": "second"}, "second": {"Items": [item(skuName="x Spot")]}}
    asked: list[str] = []

    def get(url: str) -> Any:
        asked.append(url)
        return pages.get(url, pages["first"])

    found = prices.refresh("http://x", ["eastus"], "2026-11-15", sizes=[D8.name], get=get)
    assert asked[1:] == ["second"]
    assert "armSkuName+eq+%27Standard_D8ds_v5%27" in asked[0]
    path = tmp_path / "home" / "prices.json"
    prices.store(path, found)
    table = prices.load(path)
    assert table.find(EAST) == ListPrice(usd_per_hour=0.5, date="2026-11-15")
    spot = table.find(Offering(size=D8.name, region="eastus", spot=True))
    assert spot is not None
    assert table.find(Offering(size=D8.name, region="westus2")) is not None


def test_pages_that_do_not_end():
    with pytest.raises(CloudError, match="does not end"):
        prices.refresh("http://x", ["eastus"], "t", sizes=["a"], get=lambda _: {"Items": [], "NextPageLink": "again"})


def test_a_price_list_that_does_not_answer():
    with pytest.raises(CloudError, match=r"127\.0\.0\.1:9 does not answer.*prices of 2026-06-18 stay"):
        prices.fetch("http://127.0.0.1:9/x")


def test_a_damaged_file_is_as_none(tmp_path: Path):
    path = tmp_path / "prices.json"
    path.write_text("{")
    assert prices.load(path).rows == prices.packaged().rows


def test_disks_are_billed_by_steps():
    assert prices.disk_usd_per_hour("Premium_LRS", 100) == prices.disk_usd_per_hour("Premium_LRS", 128)
    assert prices.disk_usd_per_hour("StandardSSD_LRS", 128) < prices.disk_usd_per_hour("Premium_LRS", 128)


def usages(family: int, region: int, spot: int = 0) -> dict[str, Usage]:
    rows = {"standardDdsV5Family": family, "cores": region, "lowPriorityCores": spot}
    return {name: Usage(name=name, label=name, used=8, limit=limit) for name, limit in rows.items()}


@pytest.mark.parametrize(
    ("family", "region", "workers", "spot", "lacks"),
    [
        (100, 100, 10, False, {}),
        (80, 100, 10, False, {"standardDdsV5Family": 8}),
        (100, 80, 10, False, {"cores": 8}),
        (0, 0, 1, True, {"lowPriorityCores": 16}),
    ],
)
def test_missing_quota(family: int, region: int, workers: int, spot: bool, lacks: dict[str, int]):
    short = quota.allowance(usages(family, region), D8, "eastus", spot=spot).missing(workers)
    assert {each.name: each.missing for each in short} == lacks


def test_how_many_fit():
    assert quota.allowance(usages(100, 50), D8, "eastus").fits == 5
    assert quota.allowance({}, D8, "eastus").fits == 0


def run(capsys: pytest.CaptureFixture[str], *args: str, code: int = 0) -> str:
    assert entry.run(args) == code
    output = capsys.readouterr()
    return output.err if code else output.out


def test_sizes_and_prices_commands(capsys: pytest.CaptureFixture[str]):
    assert "Standard_D8ds_v5         8   32 GB  yes       yes    0.452  standardDDSv5Family" in run(capsys, "sizes")
    told = json.loads(run(capsys, "sizes", "--json", "--region", "westeurope"))
    assert next(row for row in told["sizes"] if row["name"] == D8.name)["usd_per_hour"] == 0.544
    told = json.loads(run(capsys, "prices", "--size", D8.name.lower(), "--region", "centralus", "--json"))
    assert [(row["usd_per_hour"], row["spot_usd_per_hour"]) for row in told["prices"]] == [(0.511, None)]
    assert "no price is known for mars" in run(capsys, "prices", "--region", "mars")


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["quota"], "azure.subscription: not set"),
        (["sizes", "--regin", "x"], "No such option"),
        (["prices", "--size", "huge"], 'no VM size "huge"'),
    ],
)
def test_what_is_refused(capsys: pytest.CaptureFixture[str], args: list[str], said: str):
    assert said in run(capsys, *args, code=2)


def test_the_emulator_must_be_named(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("EVALFLEET_AZURE_PROFILE", "emulator")
    assert "start `evalfleet emulator`" in run(capsys, "quota", code=2)


def test_the_quota_that_binds_is_the_one_with_the_least_left():
    rows = [
        Usage(name="cores", label="", used=90, limit=100),
        Usage(name="standardDDSv5Family", label="", used=16, limit=20),
        Usage(name="lowPriorityCores", label="", used=0, limit=3),
        Usage(name="other", label="", used=9, limit=9),
    ]
    assert quota.tightest({row.name: row for row in rows}, D8, spot=False) == rows[1]
    assert quota.tightest({row.name: row for row in rows}, D8, spot=True) == rows[2]
    assert quota.tightest({}, D8, spot=False) is None
