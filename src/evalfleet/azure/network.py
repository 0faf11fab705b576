"""The network that the machines of a pool share in a region: a security group, and a virtual network where there is none yet."""

from __future__ import annotations

import anyio
from msgspec import Struct

from evalfleet.azure.arm import GROUPS_API, judged
from evalfleet.azure.clients import Clients
from evalfleet.azure.requests import vm
from evalfleet.pools.cloud.records import LABEL_OWNER

NETWORK_API = "2024-05-01"


class Network(Struct, frozen=True, kw_only=True):
    """What the VMs of a pool in one region share."""

    subnet_id: str
    nsg_id: str


class Networks:
    """The networks of one resource group."""

    def __init__(self, clients: Clients) -> None:
        self._settings = clients.settings
        self._arm = clients.arm
        self._made: dict[tuple[str, str], Network] = {}  # by pool and region
        self._lock = anyio.Lock()

    async def ensure(self, pool: str, region: str, owner: str) -> Network:
        """Make the pool's network of that region, and let in the address that we have now; once in this process."""
        async with self._lock, judged(region):
            if (pool, region) not in self._made:
                await self._ensure_group(region, owner)
                self._made[pool, region] = await self._ensure(pool, region, owner)
            return self._made[pool, region]

    async def _ensure_group(self, region: str, owner: str) -> None:
        """A resource group that exists keeps its region."""
        path = self._settings.group_path()
        if await self._arm.get(path, GROUPS_API) is None:
            tags = {**self._settings.tags, LABEL_OWNER: owner}
            await self._arm.put(path, GROUPS_API, {"location": region, "tags": tags})

    async def _ensure(self, pool: str, region: str, owner: str) -> Network:
        labels = {**self._settings.tags, **vm.network_tags(pool, owner)}
        nsg, vnet = self._paths(pool, region)
        admitted = self._settings.admitted()
        known = await self._arm.get(nsg, NETWORK_API)
        if known is None:
            await self._arm.put(nsg, NETWORK_API, vm.nsg_body(region, admitted, owner, labels))
        elif (rule := vm.missing_rule(known, admitted, owner)) is not None:
            await self._arm.put(f"{nsg}/securityRules/{vm.rule_name(owner)}", NETWORK_API, rule)
        theirs = self._settings.subnets.get(region)
        if theirs is not None:
            return Network(subnet_id=theirs, nsg_id=nsg)
        if await self._arm.get(vnet, NETWORK_API) is None:
            await self._arm.put(vnet, NETWORK_API, vm.vnet_body(region, labels))
        return Network(subnet_id=f"{vnet}/subnets/{vm.SUBNET}", nsg_id=nsg)

    async def drop(self, pool: str, region: str) -> None:
        """Delete the pool's network of that region, once no VM is in it any more."""
        nsg, vnet = self._paths(pool, region)
        async with judged(region):
            await self._arm.delete(vnet, NETWORK_API)
            await self._arm.delete(nsg, NETWORK_API)
        self._made.pop((pool, region), None)

    def _paths(self, pool: str, region: str) -> tuple[str, str]:
        """Of the security group, and of the virtual network."""
        place = f"{self._settings.group_path()}/providers/Microsoft.Network"
        return f"{place}/networkSecurityGroups/{pool}-{region}", f"{place}/virtualNetworks/{pool}-{region}"
