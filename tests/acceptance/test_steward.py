"""Pools of VMs from zero to nothing, on the emulator, with the real SDKs and real SSH."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.cloud import Cloud, cloud

from evalfleet import config
from evalfleet.azure.facts import facts_of
from evalfleet.azure.pool import AzurePool
from evalfleet.emulator.faults import Fault
from evalfleet.emulator.scenario import Scenario
from evalfleet.fleet.keeping import keeping
from evalfleet.fleet.steward import Steward
from evalfleet.model import Wish
from evalfleet.store.clerk import Clerk
from evalfleet.store.sqlite import open_store

pytestmark = pytest.mark.anyio
NAME = "p1"


@dataclass
class Site:
    """A home with a store, in front of an emulated cloud."""

    cloud: Cloud
    settings: config.Settings
    store: Any
    clerk: Clerk

    def wants(self, **wanted: Any) -> None:
        made = AzurePool(**{"workers": 2, "regions": ("eastus",), **wanted})
        self.store.create_pool(NAME, "azure-vm", msgspec.to_builtins(made))

    @asynccontextmanager
    async def steward(self) -> AsyncGenerator[Steward]:
        async with keeping(self.settings, self.store, self.clerk, NAME, "test") as steward:
            yield steward

    async def settle(self) -> None:
        async with self.steward() as steward:
            await steward.settle()

    def states(self, *, gone: bool = False) -> dict[str, str]:
        return {host.name: str(host.state) for host in self.store.hosts(NAME, gone=gone)}

    def wish(self, wish: Wish, *names: str) -> None:
        all_names = [host.name for host in self.store.hosts(NAME)]
        self.store.wish(NAME, names or all_names, wish, "test")

    async def leaks(self) -> Any:
        return await self.cloud.control("GET", "leaks")


@asynccontextmanager
async def site(folder: Path, scenario: Scenario | None = None, **options: Any) -> AsyncGenerator[Site]:
    async with cloud(scenario, **options) as here:
        settings = config.load(folder / "home", environ=here.emulator.settings(), folder=folder)
        store = open_store(settings.home)
        try:
            yield Site(here, settings, store, Clerk())
        finally:
            store.close()


async def test_from_zero_to_nothing(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        here.wants(workers=3)
        await here.settle()
        assert here.states() == {"waa-eval-1": "ready", "waa-eval-2": "ready", "waa-eval-3": "ready"}
        first = here.store.hosts(NAME)[0]
        assert (
            facts_of(first).host_key not in facts_of(first).keys.values()
        )  # the one that we made is not in use any more
        here.wish(Wish.STOPPED)
        await here.settle()
        assert set(here.states().values()) == {"stopped"}
        assert {view.power for view in await here.cloud.vms.list(NAME)} == {"deallocated"}
        here.wish(Wish.RUNNING)
        await here.settle()
        assert set(here.states().values()) == {"ready"}
        here.store.doom_pool(NAME)
        await here.settle()
        assert here.store.pools() == []
        assert await here.cloud.vms.list() == []
        assert len(here.cloud.exchanges("PUT", "virtualMachines/")) == 3


async def test_a_climb_whose_connection_breaks_goes_on_over_a_new_one(tmp_path: Path) -> None:
    """All rungs share one connection: at each script in turn it is cut once."""
    cuts = [Fault(op="host.exec", match={"command": "exec sh -s"}, drop=True, times=1, skip=at) for at in range(3)]
    async with site(tmp_path, Scenario(fault=cuts)) as here:
        here.wants(workers=1, setup="true", deadlines={"host_key": 20, "disk": 20, "setup": 20})
        await here.settle()
        assert here.states() == {"waa-eval-1": "ready"}
        assert len(here.cloud.exchanges("PUT", "virtualMachines/")) == 1
        assert len(here.cloud.events("fault.hit")) == 3
