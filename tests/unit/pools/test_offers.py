"""The commands about rented machines ask whichever cloud a backend names."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from evalfleet.answers.machines import MissingQuota, QuotaCounter, SizeFacts
from evalfleet.azure.provider import AzureProvider
from evalfleet.cli import main as entry
from evalfleet.config import Settings
from evalfleet.layout import Home
from evalfleet.pools.cloud.catalogue import Allowance, ListPrice, PriceTable
from evalfleet.pools.cloud.records import Offering
from evalfleet.pools.kinds import registry
from evalfleet.pools.kinds.cloud import CloudKind


class MoonProvider(AzureProvider):
    """A cloud with one size in one region."""

    name = "moon-vm"
    default_size = "crater"
    default_regions = ("moon",)

    def is_configured(self, settings: Settings) -> bool:
        return False

    def account(self, settings: Settings) -> dict[str, str]:
        return {}

    def size(self, name: str) -> str:
        return name

    def sizes(self) -> list[SizeFacts]:
        return [SizeFacts(name="crater", vcpus=4, memory_gb=8, nested=False, temporary_disk=False, family="rock")]

    def prices(self, home: Home) -> PriceTable:
        return PriceTable({Offering(size="crater", region="moon"): ListPrice(usd_per_hour=2.0, date="2026-11-01")})

    async def allowances(self, settings: Settings, size: str, regions: Sequence[str], *, spot: bool) -> list[Allowance]:
        counter = QuotaCounter(name="rock", used=2, limit=12)
        return [Allowance(region=region, cores=4, counters=(counter,)) for region in regions]

    def kept_usd_per_hour(self, size: str, disk_gb: int) -> float:
        return 0.0

    def quota_advice(self, missing: MissingQuota, region: str) -> str:
        return f"ask the {region} for {missing.missing} more"


class PlainKind(CloudKind):
    """A cloud whose offers are not known."""

    def __init__(self) -> None:
        class Plain:
            name, title = "plain-vm", "plain"

        super().__init__(Plain())  # pyright: ignore[reportArgumentType]


MOON, PLAIN = CloudKind(MoonProvider()), PlainKind()


@pytest.fixture(autouse=True)
def _known(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("EVALFLEET_HOME", str(tmp_path))
    monkeypatch.setitem(registry.BUILT_IN, "moon-vm", f"{__name__}:MOON")
    monkeypatch.setitem(registry.BUILT_IN, "plain-vm", f"{__name__}:PLAIN")


def run(capsys: pytest.CaptureFixture[str], *args: str, code: int = 0) -> str:
    assert entry.run(args) == code
    output = capsys.readouterr()
    return output.err if code else output.out


def test_each_command_asks_the_named_cloud(capsys: pytest.CaptureFixture[str]):
    moon = ("--backend", "moon-vm", "--json")
    sizes = json.loads(run(capsys, "sizes", *moon))
    assert (sizes["region"], [(row["name"], row["usd_per_hour"]) for row in sizes["sizes"]]) == (
        "moon",
        [("crater", 2.0)],
    )
    assert json.loads(run(capsys, "prices", *moon))["prices"] == [
        {"size": "crater", "region": "moon", "usd_per_hour": 2.0, "spot_usd_per_hour": None, "date": "2026-11-01"}
    ]
    (quota,) = json.loads(run(capsys, "quota", "-w", "3", *moon))["quotas"]
    assert (quota["fits"], quota["missing"]) == (2, ["ask the moon for 2 more"])
    found = json.loads(run(capsys, "plan", "--tasks", "10", "-w", "2", "--size", "crater", *moon))
    assert found["backend"] == "moon-vm"
    (group,) = found["options"][0]["groups"]
    assert (group["size"], group["region"], group["machines"], group["usd_per_hour"]) == ("crater", "moon", 2, 2.0)


def test_without_a_name_the_first_known_cloud_is_asked(capsys: pytest.CaptureFixture[str]):
    assert json.loads(run(capsys, "sizes", "--json"))["region"] == "eastus"


@pytest.mark.parametrize(
    ("backend", "said"),
    [
        ("plain-vm", "sizes and prices of plain-vm are not known"),
        ("mars", "there is no backend 'mars'"),
        ("ssh", "of ssh"),
    ],
)
def test_clouds_without_known_offers(capsys: pytest.CaptureFixture[str], backend: str, said: str):
    assert said in run(capsys, "sizes", "--backend", backend, code=2)
