"""The bodies of our requests: VM, network and auto-shutdown. Pure functions of plain records.

One PUT makes the VM, its network interface, its public address and its disk, and one DELETE removes all four, because
every one of them says `deleteOption: Delete`; what Azure does by default, Detach, leaves three of them to be paid for.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from evalfleet.azure import sizes
from evalfleet.azure.settings import ADMIN_USER, AzureSettings
from evalfleet.pools.cloud.records import LABEL_OWNER, LABEL_POOL, MachineSpec

Body = dict[str, Any]

NETWORK_API = "2022-11-01"
SUBNET = "workers"
FIRST_PRIORITY = 1000
PLAIN = AzureSettings(subscription="")
_IMAGES = {
    # Generation of the image -> Ubuntu 24.04 for it.
    1: "server-gen1",
    2: "server",
}


def cloud_init(spec: MachineSpec) -> str:
    """Return the VM's user data: our host key and nothing else that is secret. JSON, which is YAML as well."""
    content = {
        "ssh_deletekeys": True,
        "ssh_keys": {"ed25519_private": spec.host_key.private, "ed25519_public": spec.host_key.public},
        "package_update": False,
        "ssh_pwauth": False,
    }
    return "#cloud-config\n" + json.dumps(content, indent=1) + "\n"


def vm_body(spec: MachineSpec, *, subnet_id: str, nsg_id: str, reach: AzureSettings = PLAIN) -> Body:
    """Return the body of the one PUT that makes everything.

    Args:
        reach: what the account asks for: tags, zone, identity, addresses.
    """
    size = sizes.find(spec.size)
    properties: Body = {
        "hardwareProfile": {"vmSize": size.name},
        # Without it an API version from 2025-11-01 on makes it Trusted Launch, and KVM inside is then in doubt.
        "securityProfile": {"securityType": "Standard"},
        "storageProfile": {
            "imageReference": {"id": spec.image} if spec.image else _ubuntu(size),
            "osDisk": {
                "name": f"{spec.name}-disk",
                "createOption": "FromImage",
                "deleteOption": "Delete",
                "diskSizeGB": spec.disk_gb,
                "managedDisk": {"storageAccountType": disk_kind(size)},
            },
        },
        "osProfile": _os_profile(spec),
        "networkProfile": {
            "networkApiVersion": NETWORK_API,
            "networkInterfaceConfigurations": [_nic(spec, reach, subnet_id, nsg_id)],
        },
        "diagnosticsProfile": {"bootDiagnostics": {"enabled": True}},
        **_spot(spec),
    }
    body: Body = {"location": spec.region, "tags": {**reach.tags, **spec.labels()}, "properties": properties}
    if reach.zone is not None:
        body["zones"] = [reach.zone]
    if reach.identity is not None:
        body["identity"] = {"type": "UserAssigned", "userAssignedIdentities": {reach.identity: {}}}
    return body


def _ubuntu(size: sizes.Size) -> Body:
    sku = "server-arm64" if size.series.arm else _IMAGES[size.generation]
    return {"publisher": "Canonical", "offer": "ubuntu-24_04-lts", "sku": sku, "version": "latest"}


def disk_kind(size: sizes.Size) -> str:
    return "Premium_LRS" if size.series.premium else "StandardSSD_LRS"


def _os_profile(spec: MachineSpec) -> Body:
    return {
        "computerName": spec.name,
        "adminUsername": ADMIN_USER,
        "customData": base64.b64encode(cloud_init(spec).encode()).decode(),
        "linuxConfiguration": {
            "disablePasswordAuthentication": True,
            "ssh": {"publicKeys": [{"path": f"/home/{ADMIN_USER}/.ssh/authorized_keys", "keyData": spec.login_key}]},
        },
    }


def _nic(spec: MachineSpec, reach: AzureSettings, subnet_id: str, nsg_id: str) -> Body:
    tags = {**reach.tags, **spec.labels()}
    inner: Body = {"primary": True, "subnet": {"id": subnet_id}}
    if reach.public_ip:
        inner["publicIPAddressConfiguration"] = _address(spec, tags)
    properties: Body = {
        "primary": True,
        "deleteOption": "Delete",
        "networkSecurityGroup": {"id": nsg_id},
        "ipConfigurations": [{"name": "main", "properties": inner}],
    }
    if reach.accelerated is not None:
        properties["enableAcceleratedNetworking"] = reach.accelerated
    return {"name": f"{spec.name}-nic", "tags": tags, "properties": properties}


def _address(spec: MachineSpec, tags: Mapping[str, str]) -> Body:
    return {
        "name": f"{spec.name}-ip",
        "sku": {"name": "Standard"},
        "properties": {"deleteOption": "Delete", "publicIPAllocationMethod": "Static"},
        "tags": dict(tags),
    }


def _spot(spec: MachineSpec) -> Body:
    if not spec.spot:
        return {}
    price = -1 if spec.max_price_usd is None else spec.max_price_usd
    # An evicted machine of ours is replaced, not started again: what is deallocated would still cost disk and quota.
    return {"priority": "Spot", "evictionPolicy": "Delete", "billingProfile": {"maxPrice": price}}


def network_tags(pool: str, owner: str) -> dict[str, str]:
    return {LABEL_POOL: pool, LABEL_OWNER: owner}


def nsg_body(region: str, admitted: Sequence[str], owner: str, labels: dict[str, str]) -> Body:
    """Return a security group that lets SSH in from our networks only; all else stays shut by Azure's own rules."""
    rule = {"name": rule_name(owner), **rule_body(admitted, FIRST_PRIORITY)}
    return {"location": region, "tags": labels, "properties": {"securityRules": [rule]}}


def rule_name(owner: str) -> str:
    """Each home has a rule of its own: pools of one name in two homes share their security group."""
    return f"ssh-from-{hashlib.sha256(owner.encode()).hexdigest()[:10]}"


def rule_body(admitted: Sequence[str], priority: int) -> Body:
    return {
        "properties": {
            "priority": priority,
            "direction": "Inbound",
            "access": "Allow",
            "protocol": "Tcp",
            "sourceAddressPrefixes": list(admitted),
            "sourcePortRange": "*",
            "destinationAddressPrefix": "*",
            "destinationPortRange": "22",
        }
    }


def missing_rule(nsg: Mapping[str, Any], admitted: Sequence[str], owner: str) -> Body | None:
    """Return the rule that a security group lacks, to let us in; None: it has it."""
    rules: Sequence[Any] = nsg["properties"].get("securityRules") or ()
    known: Any = next((each for each in rules if each["name"] == rule_name(owner)), None)
    if known is not None:
        has = sorted(known["properties"].get("sourceAddressPrefixes") or ())
        return None if has == sorted(admitted) else rule_body(admitted, known["properties"]["priority"])
    taken = {each["properties"].get("priority") for each in rules}
    return rule_body(admitted, next(n for n in range(FIRST_PRIORITY, 4096) if n not in taken))


def vnet_body(region: str, labels: dict[str, str]) -> Body:
    """Return a virtual network with one subnet for the workers; large enough for 4,000 of them."""
    subnet = {"name": SUBNET, "properties": {"addressPrefix": "10.77.0.0/20"}}
    space = {"addressSpace": {"addressPrefixes": ["10.77.0.0/16"]}, "subnets": [subnet]}
    return {"location": region, "tags": labels, "properties": space}


def shutdown_body(region: str, vm_id: str, at: float, labels: dict[str, str]) -> Body:
    """Return an auto-shutdown schedule: Azure deallocates the VM at that minute of the day, with or without us."""
    return {
        "location": region,
        "tags": labels,
        "properties": {
            "status": "Enabled",
            "taskType": "ComputeVmShutdownTask",
            "dailyRecurrence": {"time": datetime.fromtimestamp(at, UTC).strftime("%H%M")},
            "timeZoneId": "UTC",
            "notificationSettings": {"status": "Disabled"},
            "targetResourceId": vm_id,
        },
    }


def is_deadline(schedule: Body, vm_id: str, at: float) -> bool:
    """Whether a schedule, as Azure shows it, deallocates that VM at that minute of the day."""
    wanted = shutdown_body("", vm_id, at, {})["properties"]
    shown: Any = schedule.get("properties") or {}
    return (
        str(shown.get("status", "")).lower() == "enabled"
        and str(shown.get("targetResourceId", "")).lower() == vm_id.lower()
        and shown.get("dailyRecurrence", {}).get("time") == wanted["dailyRecurrence"]["time"]
    )
