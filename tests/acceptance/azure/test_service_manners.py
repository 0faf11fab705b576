"""What the real service does and a simple emulator does not: pages, clocks that differ, locks, members that are required."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.support import azure_bodies
from tests.support.cloud import cloud
from tests.support.web_site import NAME, site

from evalfleet.core.hosts.lifecycle import Power
from evalfleet.emulator.scenario import Scenario
from evalfleet.pools.cloud.problems import Refusal
from evalfleet.pools.cloud.records import expires_of

pytestmark = pytest.mark.anyio


async def test_lists_are_read_over_all_their_pages(tmp_path: Path):
    async with site(tmp_path, Scenario(page=1)) as here:
        here.wants(workers=3)
        await here.settle()
        assert list(here.states().values()) == ["ready"] * 3
        assert len(await here.cloud.vms.list(NAME)) == 3
        asked = here.cloud.exchanges("GET", "/resources")
        await here.cloud.vms.resources(NAME)
        assert len(here.cloud.exchanges("GET", "/resources")) - len(asked) > 10
        here.store.pools.mark_for_deletion(NAME)
        await here.settle()
        assert await here.leaks() == {"leaks": [], "resources": {}}


@pytest.mark.parametrize("ahead_h", [5, -5])
async def test_deadlines_go_by_the_clock_of_the_cloud(tmp_path: Path, ahead_h: int):
    async with site(tmp_path, Scenario(clock_ahead=ahead_h * 3600)) as here:
        here.wants(workers=1, max_hours=4)
        await here.settle()
        there = time.time() + ahead_h * 3600
        (put, *_) = here.cloud.exchanges("PUT", "/schedules/")
        shown = put["request"]["properties"]["dailyRecurrence"]["time"]
        wanted = {datetime.fromtimestamp(there + 4 * 3600 + late, UTC).strftime("%H%M") for late in range(-180, 61, 60)}
        assert shown in wanted
        (view,) = await here.cloud.vms.list(NAME)
        expires = expires_of(view.labels)
        assert expires is not None
        assert abs(expires - there - 4 * 3600) < 300


async def test_a_lock_is_named_and_its_pool_can_be_deleted_once_it_is_gone(tmp_path: Path):
    async with site(tmp_path) as here:
        here.wants(workers=1)
        await here.settle()
        here.cloud.emulator.world.scenario.lock.append("evalfleet")
        here.store.pools.mark_for_deletion(NAME)
        with pytest.raises(Refusal, match=r"a lock forbids it.*az lock list"):
            await here.settle()
        (view,) = await here.cloud.vms.list(NAME)
        assert view.power is Power.RELEASED  # what cannot be deleted costs only its disk
        here.cloud.emulator.world.scenario.lock.clear()
        await here.settle()
        assert await here.leaks() == {"leaks": [], "resources": {}}


async def test_lists_in_a_group_that_is_missing_are_refused():
    async with cloud() as here:
        base = f"{here.emulator.url}/subscriptions/{here.settings.subscription}/resourceGroups/nowhere/providers"
        for kind in ("Microsoft.Compute/disks", "Microsoft.Network/networkInterfaces", "Microsoft.Compute/snapshots"):
            url = f"{base}/{kind}?api-version=2024-07-01"
            async with here.http.get(url, headers={"Authorization": "Bearer x"}) as answer:
                assert (answer.status, (await answer.json())["error"]["code"]) == (404, "ResourceGroupNotFound")


async def test_disks_and_interfaces_have_what_their_descriptions_require():
    async with cloud() as here:
        await here.made(here.spec())
        world = here.emulator.world
        (disk,) = [each for each in world.resources if each["type"] == "Microsoft.Compute/disks"]
        assert disk["properties"]["creationData"]["createOption"] == "FromImage"
        (nic,) = [each for each in world.resources if each["type"] == "Microsoft.Network/networkInterfaces"]
        (row,) = nic["properties"]["ipConfigurations"]
        assert row["properties"]["publicIPAddress"]["properties"]["deleteOption"] == "Delete"
        assert "publicIPAddressDeleteOption" not in row["properties"]
        if azure_bodies.COMPUTE.exists():
            file, schema = azure_bodies.schema_of(azure_bodies.NETWORK / "networkInterface.json", "NetworkInterface")
            assert list(azure_bodies.by_schema(nic, file, schema, request=False)) == []
