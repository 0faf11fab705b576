"""The request bodies: what is in them, by the library's models, and by the official OpenAPI files."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from azure.mgmt.compute import models as compute
from azure.mgmt.network import models as network
from msgspec.structs import replace
from tests.support import azure_bodies

from evalfleet.azure import sizes, skus
from evalfleet.azure.requests import vm
from evalfleet.azure.settings import AzureSettings
from evalfleet.errors import ConfigError, NotFound
from evalfleet.pools.cloud.records import LABEL_RUN, HostKey, MachineSpec, expires_of
from evalfleet.pools.machine.keys import fresh_host_key

KEY = HostKey(public="ssh-ed25519 AAAA", private="PRIVATE-HALF\n")
SPEC = MachineSpec(
    size=sizes.DEFAULT_SIZE,
    name="evalfleet-1",
    worker="w1",
    pool="p1",
    run="r1",
    owner="me",
    expires_at=1_800_000_000,
    region="eastus",
    login_key="ssh-ed25519 BBBB",
    host_key=KEY,
)
SPOT = replace(SPEC, spot=True, max_price_usd=0.1)
OLD = replace(SPEC, size="Standard_D8_v3")
IDS = {"subnet_id": "/x/subnets/workers", "nsg_id": "/x/nsg"}
LABELS = vm.network_tags("p1", "me")


def body(spec: MachineSpec) -> dict[str, Any]:
    return vm.vm_body(spec, subnet_id=IDS["subnet_id"], nsg_id=IDS["nsg_id"])


@pytest.mark.parametrize("spec", [SPEC, SPOT, OLD, replace(SPEC, image="/x/images/golden")])
def test_vm_body_fits_the_librarys_models(spec: MachineSpec):
    assert list(azure_bodies.by_model(body(spec), compute.VirtualMachine)) == []


def test_a_wrong_body_is_seen():
    wrong = body(SPEC)
    wrong["properties"]["hardwareProfil"] = wrong["properties"].pop("hardwareProfile")
    wrong["properties"]["osProfile"]["computerName"] = 3
    assert len(list(azure_bodies.by_model(wrong, compute.VirtualMachine))) == 2


# Members that are newer than the files, which are of October 2024.
NEWER = {".tags: not in the schema"}


@pytest.mark.skipif(not azure_bodies.SPECS.exists(), reason="the official files are not here")
@pytest.mark.parametrize("spec", [SPEC, SPOT, OLD])
def test_vm_body_fits_the_official_schema(spec: MachineSpec):
    file, schema = azure_bodies.schema_of(azure_bodies.COMPUTE / "virtualMachine.json", "VirtualMachine")
    faults = list(azure_bodies.by_schema(body(spec), file, schema))
    assert [fault for fault in faults if not fault.endswith(tuple(NEWER))] == []


@pytest.mark.skipif(not azure_bodies.SPECS.exists(), reason="the official files are not here")
@pytest.mark.parametrize(
    ("document", "name", "made"),
    [
        ("networkSecurityGroup.json", "NetworkSecurityGroup", vm.nsg_body("eastus", ["203.0.113.7/32"], "me", LABELS)),
        ("virtualNetwork.json", "VirtualNetwork", vm.vnet_body("eastus", LABELS)),
    ],
)
def test_network_bodies_fit_the_official_schema(document: str, name: str, made: dict[str, Any]):
    file, schema = azure_bodies.schema_of(azure_bodies.NETWORK / document, name)
    assert list(azure_bodies.by_schema(made, file, schema)) == []


def test_network_bodies_fit_the_librarys_models():
    nsg = vm.nsg_body("eastus", ["203.0.113.7/32"], "me", LABELS)
    assert list(azure_bodies.by_model(nsg, network.NetworkSecurityGroup)) == []
    assert list(azure_bodies.by_model(vm.vnet_body("eastus", LABELS), network.VirtualNetwork)) == []


def places(value: Any, name: str) -> list[Any]:
    """Every value of that name, however deep."""
    if isinstance(value, dict):
        here = [value[name]] if name in value else []
        return here + [found for each in value.values() for found in places(each, name)]
    return [found for each in value for found in places(each, name)] if isinstance(value, list) else []


def test_one_delete_removes_all():
    assert places(body(SPEC), "deleteOption") == ["Delete"] * 3  # disk, interface, address


def test_security_type_is_said():
    assert body(SPEC)["properties"]["securityProfile"] == {"securityType": "Standard"}


@pytest.mark.parametrize(
    ("size", "sku", "disk"),
    [("Standard_D8ds_v5", "server", "Premium_LRS"), ("Standard_D8_v3", "server-gen1", "StandardSSD_LRS")],
)
def test_image_and_disk_fit_the_size(size: str, sku: str, disk: str):
    storage = body(replace(SPEC, size=size))["properties"]["storageProfile"]
    assert storage["imageReference"]["sku"] == sku
    assert storage["osDisk"]["managedDisk"]["storageAccountType"] == disk


def test_tags_tell_whose_it_is_and_until_when():
    made = body(SPEC)
    wanted = {"pool": "p1", "run": "r1", "worker": "w1", "owner": "me", "expires": "2027-01-15T08:00:00Z"}
    assert made["tags"] == {f"evalfleet-{name}": value for name, value in wanted.items()}
    assert places(made["properties"], "tags") == [made["tags"]] * 2
    assert expires_of(made["tags"]) == SPEC.expires_at
    assert expires_of({}) is None
    assert LABEL_RUN not in replace(SPEC, run="").labels()


def test_spot_fields_only_for_spot():
    properties = body(SPOT)["properties"]
    assert (properties["priority"], properties["evictionPolicy"]) == ("Spot", "Delete")
    assert properties["billingProfile"] == {"maxPrice": 0.1}
    assert body(replace(SPOT, max_price_usd=None))["properties"]["billingProfile"] == {"maxPrice": -1}
    assert not {"priority", "evictionPolicy", "billingProfile"} & body(SPEC)["properties"].keys()


def test_cloud_init_carries_the_host_key_and_nothing_else_does():
    made = body(SPEC)
    text = base64.b64decode(made["properties"]["osProfile"].pop("customData")).decode()
    first, _, rest = text.partition("\n")
    assert first == "#cloud-config"
    assert json.loads(rest)["ssh_keys"] == {"ed25519_private": KEY.private, "ed25519_public": KEY.public}
    assert "PRIVATE-HALF" not in json.dumps(made)
    assert "PRIVATE-HALF" not in repr(SPEC)


def test_fresh_host_keys_differ():
    one, other = fresh_host_key(), fresh_host_key()
    assert one.public.startswith("ssh-ed25519 ")
    assert "OPENSSH PRIVATE KEY" in one.private
    assert one.public != other.public


def test_security_group_lets_one_network_in():
    (rule,) = vm.nsg_body("eastus", ["203.0.113.7/32"], "me", LABELS)["properties"]["securityRules"]
    assert rule["properties"]["sourceAddressPrefixes"] == ["203.0.113.7/32"]
    assert rule["properties"]["destinationPortRange"] == "22"


@pytest.mark.skipif(not azure_bodies.SPECS.exists(), reason="the official files are not here")
def test_what_a_company_asks_for_fits_the_official_schema():
    reach = AzureSettings(
        subscription="s",
        public_ip=False,
        tags={"team": "agents"},
        zone="1",
        accelerated=True,
        identity="/subscriptions/s/resourceGroups/g/providers/Microsoft.ManagedIdentity/userAssignedIdentities/i",
    )
    made = vm.vm_body(SPEC, subnet_id=IDS["subnet_id"], nsg_id=IDS["nsg_id"], reach=reach)
    file, schema = azure_bodies.schema_of(azure_bodies.COMPUTE / "virtualMachine.json", "VirtualMachine")
    faults = list(azure_bodies.by_schema(made, file, schema))
    assert [fault for fault in faults if not fault.endswith(tuple(NEWER))] == []
    assert "publicIPAddressConfiguration" not in str(made)
    rule = vm.rule_body(["203.0.113.7/32"], 1000)
    file, schema = azure_bodies.schema_of(azure_bodies.NETWORK / "networkSecurityGroup.json", "SecurityRule")
    assert list(azure_bodies.by_schema(rule, file, schema)) == []


@pytest.mark.parametrize(
    ("name", "vcpus", "memory_gb"),
    [
        ("standard_nc24ads_a100_v4", 24, 220.1),
        ("Standard_NC4as_T4_v3", 4, 27.5),
        ("Standard_D96ds_v5", 96, 384),
        ("Standard_NC80adis_H100_v5", 80, 640),
    ],
)
def test_sizes_of_known_series_are_found_with_any_number_of_vcpus(name: str, vcpus: int, memory_gb: float):
    size = sizes.find(name)
    assert (size.vcpus, size.memory_gb) == (vcpus, memory_gb)
    assert size.name.lower() == name.lower()


def test_several_networks_may_be_let_in():
    reach = AzureSettings(subscription="s", ssh_from="203.0.113.7, 198.51.100.0/24")
    assert reach.admitted() == ["203.0.113.7/32", "198.51.100.0/24"]


@pytest.mark.parametrize(
    ("given", "said"),
    [(None, "not set"), ("here", "is no address"), ("0.0.0.0/0", "whole Internet"), ("2001:db8::7/128", "IPv4 only")],
)
def test_the_admitted_network_must_be_named(given: str | None, said: str):
    with pytest.raises(ConfigError, match=said):
        AzureSettings(subscription="s", ssh_from=given).admitted()
    assert AzureSettings(subscription="s", ssh_from="203.0.113.7").admitted() == ["203.0.113.7/32"]


def test_sizes():
    assert sizes.find("standard_d8DS_v5").name == "Standard_D8ds_v5"
    assert sizes.find("Standard_D8ds_v5").memory_gb == 32
    assert not sizes.find("Standard_D8as_v4").nested
    with pytest.raises(NotFound, match="did you mean Standard_D8ds_v5"):
        sizes.find("Standard_D8dsv5")
    assert (
        sizes.find("Standard_D8ds_v55").vcpus == 8
    )  # a name as Azure's are: the SKU API tells whether there is such a size


@pytest.mark.parametrize(
    ("name", "vcpus", "is_nested", "is_premium"),
    [
        ("Standard_D8ds_v7", 8, True, True),
        ("Standard_D8as_v4", 8, False, True),
        ("Standard_D8pls_v6", 8, False, True),
        ("Standard_E64i_v3", 64, True, False),
        ("Standard_M8-2ms", 2, True, True),
        ("Standard_B20ms", 20, False, True),
        ("Standard_DC8s_v3", 8, False, True),
        ("Standard_L8as_v3", 8, True, True),
        ("Standard_ND96isr_H200_v5", 96, False, True),
        ("Standard_D2", 2, False, False),
    ],
)
def test_a_size_of_an_unknown_series_is_what_its_name_says(name: str, vcpus: int, is_nested: bool, is_premium: bool):
    size = sizes.find(name)
    assert (size.name, size.vcpus, size.nested, size.series.premium) == (name, vcpus, is_nested, is_premium)


SKUS = azure_bodies.SPECS.parents[1] / "skus_southcentralus.json"


@pytest.mark.skipif(not SKUS.exists(), reason="the real records are not here")
def test_real_records_of_the_sku_api_agree_with_the_table():
    rows = {row["name"]: row for row in json.loads(SKUS.read_text())["skus"]}
    gpu = skus.size_of(rows["Standard_NC24ads_A100_v4"])
    assert (gpu.vcpus, gpu.memory_gb, gpu.gpus, gpu.series.generations) == (24, 220.0, 1, (2,))
    assert skus.size_of(rows["Standard_D16plds_v5"]).series.arm
    for name, row in rows.items():
        told, known = skus.size_of(row), sizes.known(name)
        if known is not None:
            assert (told.vcpus, told.family.lower(), told.nested) == (known.vcpus, known.family.lower(), known.nested)
            assert (told.generation, told.series.premium) == (known.generation, known.series.premium)
            assert (told.series.nvme, told.memory_gb) == (known.series.nvme, pytest.approx(known.memory_gb, rel=0.01))


def test_shutdown_is_at_the_minute():
    made = vm.shutdown_body("eastus", "/x/vm", 1_800_000_000, LABELS)
    assert made["properties"]["dailyRecurrence"] == {"time": "0800"}
    assert made["properties"]["targetResourceId"] == "/x/vm"
