"""Who reaches the machines: rules of their security groups, and what is said when nothing answers."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.support.web_site import NAME, Site, opened, site

pytestmark = pytest.mark.anyio
NSG = "microsoft.network/networksecuritygroups"


def let_in(here: Site) -> list[list[str]]:
    (group,) = [each for each in here.cloud.emulator.world.resources if each["type"].lower() == NSG]
    return [rule["properties"]["sourceAddressPrefixes"] for rule in group["properties"]["securityRules"]]


def comes_from(here: Site, networks: str) -> None:
    here.settings = replace(here.settings, azure=replace(here.settings.azure, ssh_from=networks))


async def test_a_new_address_is_let_in_by_the_next_command(tmp_path: Path):
    async with site(tmp_path) as here:
        comes_from(here, "127.0.0.1/32")
        here.wants(workers=1)
        await here.settle()
        comes_from(here, "127.0.0.0/30,127.0.1.0/24")
        await here.settle()
        assert ["127.0.0.0/30", "127.0.1.0/24"] in let_in(here)
        assert ["127.0.0.1/32"] not in let_in(here)


async def test_two_homes_with_a_pool_of_one_name_do_not_lock_each_other_out(tmp_path: Path):
    async with site(tmp_path) as here, opened(here.cloud, tmp_path / "other") as other:
        comes_from(here, "127.0.0.1/32")
        here.wants(workers=1, name_prefix="one")
        await here.settle()
        comes_from(other, "127.0.0.0/29")
        other.wants(workers=1, name_prefix="two")
        await other.settle()
        found = let_in(here)
        assert ["127.0.0.1/32"] in found
        assert ["127.0.0.0/29"] in found
        assert (here.count("ready"), other.count("ready")) == (1, 1)


async def test_machines_that_nobody_may_reach_name_the_setting_and_their_console(tmp_path: Path):
    async with site(tmp_path) as here:
        (group,) = [each for each in here.cloud.emulator.world.resources if each["type"].lower() == NSG]
        group["properties"]["securityRules"] = []  # the test's own group lets everybody in
        comes_from(here, "198.51.100.7")
        here.wants(workers=1, regions=("eastus", "westus2", "centralus"), deadline={"ssh": 0.5})
        await here.settle()
        assert here.states() == {}
        assert here.creations() == 2  # the third would fare no better
        _, message = here.reason()
        assert "only 198.51.100.7/32 may reach it (azure.ssh_from)" in message
        assert "its console ends with 'evalfleet-1 login:'" in message


async def test_the_networks_of_a_pool_go_with_it(tmp_path: Path):
    async with site(tmp_path) as here:
        here.wants(workers=1)
        await here.settle()
        here.store.pools.mark_for_deletion(NAME)
        await here.settle()
        assert await here.leaks() == {"leaks": [], "resources": {}}
