"""Sizes that the package's table does not know: looked up in the SKU API, priced by the price list, refused only by Azure."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import structs
from tests.acceptance.azure.test_account_commands import said
from tests.support.cloud import cloud
from tests.support.web_site import Site, site

from evalfleet.azure import sizes
from evalfleet.azure.provider import AzureProvider
from evalfleet.emulator.scenario import Scenario, Sku

pytestmark = pytest.mark.anyio
GPU = Sku(
    name="Standard_NC40ads_L9_v7",
    vcpus=40,
    memory_gb=320,
    family="StandardNCadsL9v7Family",
    gpus=2,
    usd_per_hour=4.5,
    temporary_disk_gb=100,
    generations="V2",
)
ARM = Sku(name="Standard_D8pds_v9", vcpus=8, memory_gb=32, family="StandardDpdsv9Family", arm=True)


@pytest.fixture(autouse=True)
def _nothing_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sizes, "_learned", {})


def made(here: Site) -> dict[str, object]:
    (put,) = here.cloud.exchanges("PUT", "/virtualMachines/")
    return put["request"]["properties"]


async def test_a_gpu_size_that_nobody_knew_is_looked_up_priced_and_bought(tmp_path: Path):
    async with site(tmp_path, Scenario(sku=[GPU])) as here:
        here.wants(workers=1, size=("standard_nc40ADS_l9_v7",))
        await here.settle()
        (host,) = here.hosts()
        assert (host.state, host.facts["price"]) == ("ready", "known")
        speed = AzureProvider().speed(here.settings)
        assert host.usd_per_hour == pytest.approx(4.5 * speed)
        properties = made(here)
        assert properties["hardwareProfile"] == {"vmSize": GPU.name}  # in Azure's own spelling
        known = sizes.known(GPU.name)
        assert known is not None
        assert (known.vcpus, known.memory_gb, known.gpus, known.nested) == (40, 320.0, 2, False)
        assert (known.temporary_disk, known.generation, known.family) == (True, 2, GPU.family)
        asked = len(here.cloud.exchanges("GET", "/skus"))
        sizes._learned.clear()  # pyright: ignore[reportPrivateUsage]
        here.wants(workers=2, size=(GPU.name,))  # as another process would: the home knows it
        await here.settle()
        assert len(here.hosts()) == 2
        assert len(here.cloud.exchanges("GET", "/skus")) == asked


async def test_machines_that_are_asked_for_side_by_side_wait_for_what_azure_says(tmp_path: Path):
    old = Sku(name="Standard_D8t_v9", vcpus=8, memory_gb=32, family="StandardDtv9Family", generations="V1")
    async with site(
        tmp_path, Scenario(sku=[old])
    ) as here:  # its name does not tell that only the first generation boots
        here.wants(workers=3, size=(old.name,))
        await here.settle()
        assert list(here.states().values()) == ["ready"] * 3
        assert len(here.cloud.exchanges("GET", "/skus")) == 1
        puts = here.cloud.exchanges("PUT", "/virtualMachines/")
        assert [each["status"] for each in puts] == [201] * 3


async def test_an_arm_size_gets_an_image_for_its_processor(tmp_path: Path):
    async with site(tmp_path, Scenario(sku=[ARM])) as here:
        here.wants(workers=1, size=(ARM.name,))
        await here.settle()
        assert list(here.states().values()) == ["ready"]
        assert made(here)["storageProfile"]["imageReference"]["sku"] == "server-arm64"  # pyright: ignore[reportIndexIssue]


async def test_a_size_that_azure_does_not_sell_is_refused_in_azures_words(tmp_path: Path):
    async with site(tmp_path) as here:
        here.wants(workers=1, size=("Standard_D8ds_v77",))
        await here.settle()
        assert here.hosts() == [] or "ready" not in here.states().values()
        assert "The value of parameter vmSize is not valid here" in here.reason()[1]


async def test_the_quota_of_its_own_family_counts(tmp_path: Path):
    scenario = Scenario(sku=[GPU], quota={"eastus": {GPU.family: 60}})
    async with cloud(scenario) as here:
        code, out, err = await said(here, tmp_path, "quota", "--size", GPU.name, "--region", "eastus", "--workers", "2")
        assert (code, "1 more" in out, GPU.family in out) == (0, True, True), out + err
        code, out, err = await said(
            here, tmp_path, "doctor", "--azure", "--size", GPU.name, "--regions", "eastus", "--workers", "2"
        )
        assert f"machines of {GPU.name} that still fit: eastus 1" in " ".join(out.split()), out + err
        code, out, _ = await said(
            here, tmp_path, "doctor", "--azure", "--size", "Standard_D8ds_v77", "--regions", "eastus"
        )
        assert (code, "it is not in the list of sizes there" in " ".join(out.split())) == (3, True), out


def test_the_home_may_be_read_only(tmp_path: Path):
    from evalfleet.azure import skus

    row = {"name": GPU.name, "family": GPU.family, "capabilities": [{"name": "vCPUs", "value": "40"}]}
    skus.store(tmp_path / "missing" / "sizes.json", skus.size_of(row))
    (tmp_path / "sizes.json").write_text("{nonsense")
    skus.load(tmp_path / "sizes.json")
    assert sizes.known(GPU.name) is None
    skus.store(tmp_path / "sizes.json", skus.size_of(row))
    skus.load(tmp_path / "sizes.json")
    found = sizes.known(GPU.name)
    assert found is not None
    assert structs.asdict(found)["vcpus"] == 40
