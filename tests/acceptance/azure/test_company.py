"""Machines in the network of a company: no public address, a subnet of its own, its tags, its identity; and other clouds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.support.cloud import Cloud
from tests.support.web_site import NAME, Site, site

from evalfleet import config
from evalfleet.azure import settings
from evalfleet.azure.account import policies
from evalfleet.azure.network import NETWORK_API
from evalfleet.azure.requests import vm
from evalfleet.azure.settings import AzureSettings
from evalfleet.emulator.scenario import Policy, Scenario
from evalfleet.errors import ConfigError
from evalfleet.pools.kinds.registry import clouds
from evalfleet.pools.machine.reach import ssh_spec

pytestmark = pytest.mark.anyio
IDENTITY = "/subscriptions/s/resourceGroups/g/providers/Microsoft.ManagedIdentity/userAssignedIdentities/puller"


async def subnet(here: Cloud) -> str:
    """A network that somebody else made."""
    path = f"{here.settings.group_path()}/providers/Microsoft.Network/virtualNetworks/company"
    await here.vms._arm.put(path, NETWORK_API, vm.vnet_body("eastus", {}))  # pyright: ignore[reportPrivateUsage]
    return f"{path}/subnets/workers"


def asks(here: Site, **azure: Any) -> None:
    here.settings = replace(here.settings, azure=replace(here.settings.azure, **azure))


async def test_a_pool_without_public_addresses_lives_in_a_subnet_that_is_there(tmp_path: Path):
    policy = Policy(definition=policies.NO_PUBLIC_IP, name="no public addresses")
    async with site(tmp_path, Scenario(policy=[policy])) as here:
        asks(here, public_ip=False, subnets={"eastus": await subnet(here.cloud)}, ssh_from=None)
        here.wants(workers=2)
        await here.settle()
        assert list(here.states().values()) == ["ready", "ready"]
        world = here.cloud.emulator.world
        kinds = [each["type"] for each in world.resources]
        assert "Microsoft.Network/publicIPAddresses" not in kinds
        here.store.pools.mark_for_deletion(NAME)
        await here.settle()
        left = [each["name"] for each in world.resources if each["type"].endswith("/virtualNetworks")]
        assert "company" in left  # what is not ours stays


async def test_a_policy_against_public_addresses_is_named_with_the_way_out(tmp_path: Path):
    policy = Policy(definition=policies.NO_PUBLIC_IP, name="no public addresses")
    async with site(tmp_path, Scenario(policy=[policy])) as here:
        here.wants(workers=1)
        await here.settle()
        _, message = here.reason()
        assert "a policy of your organisation forbids it" in message
        assert "docs/howto/azure-in-a-company.md" in message
        assert "sign in" not in message


async def test_tags_identity_zone_and_networking_are_what_the_company_asks_for(tmp_path: Path):
    async with site(tmp_path) as here:
        asks(here, tags={"team": "agents"}, identity=IDENTITY, zone="2", accelerated_networking=True)
        here.wants(workers=1)
        await here.settle()
        (put,) = here.cloud.exchanges("PUT", "virtualMachines/")
        body = put["request"]
        assert body["zones"] == ["2"]
        assert body["identity"] == {"type": "UserAssigned", "userAssignedIdentities": {IDENTITY: {}}}
        (nic,) = body["properties"]["networkProfile"]["networkInterfaceConfigurations"]
        assert nic["properties"]["enableAcceleratedNetworking"] is True
        owned = await here.cloud.vms.resources(NAME)
        untagged = [each.name for each in owned if "team" not in each.labels and not each.name.startswith("p1-")]
        assert untagged == []


def test_without_public_addresses_a_subnet_must_be_named(tmp_path: Path):
    environ = {"EVALFLEET_AZURE_SUBSCRIPTION": "s", "EVALFLEET_AZURE_PUBLIC_IP": "false"}
    with pytest.raises(ConfigError, match=r"\[azure\.subnets\]"):
        settings.of(config.load(tmp_path, environ=environ, folder=tmp_path))


@pytest.mark.parametrize(
    ("cloud", "arm", "authority"),
    [
        ("public", "https://management.azure.com", None),
        ("usgov", "https://management.usgovcloudapi.net", "https://login.microsoftonline.us"),
        ("china", "https://management.chinacloudapi.cn", "https://login.chinacloudapi.cn"),
    ],
)
def test_other_clouds_have_their_own_addresses(tmp_path: Path, cloud: str, arm: str, authority: str | None):
    environ = {"EVALFLEET_AZURE_SUBSCRIPTION": "s", "EVALFLEET_AZURE_CLOUD": cloud}
    found = settings.of(config.load(tmp_path, environ=environ, folder=tmp_path))
    assert (found.arm_url, found.authority, found.scope) == (arm, authority, f"{arm}/.default")
    assert isinstance(found, AzureSettings)


async def test_a_jump_host_is_on_the_way_to_the_machines(tmp_path: Path):
    async with site(tmp_path) as here:
        asks(here, jump="me@203.0.113.9:2222")
        here.wants(workers=1, deadline={"host_key": 60.0})
        kind = next(one for one in clouds() if one.name == "azure-vm")
        async with here.served():
            await here.until(lambda: bool(here.hosts()) and here.hosts()[0].readiness_check == "host_key")
            spec = ssh_spec(kind.provider, here.hosts()[0], 1)
        assert str(spec.jump) == "me@203.0.113.9:2222"
        assert spec.login.address.startswith("127.")
