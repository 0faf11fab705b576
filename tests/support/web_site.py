"""A home with a store and pools, in front of an emulated cloud: what the tests of pools share."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import msgspec
from tests.support.cloud import PATIENCE_S, Cloud, cloud

from evalfleet import config
from evalfleet.azure.sizes import DEFAULT_SIZE
from evalfleet.core.hosts.lifecycle import total_usd
from evalfleet.emulator.faults import Fault
from evalfleet.emulator.scenario import Scenario
from evalfleet.model import DesiredState, PoolHost
from evalfleet.pools.controller import PoolController, own_pool
from evalfleet.pools.machine.facts import MachineFacts, facts_of
from evalfleet.pools.settings import PoolSettings
from evalfleet.store.open import open_store
from evalfleet.store.thread import StoreThread

NAME = "p1"


@dataclass
class ServedRun:
    """What a run says to the controller that serves it; said again with every change."""

    controller: PoolController
    run: str = "r"
    wanted: int | None = None
    busy: Mapping[str, int] = field(default_factory=dict[str, int])
    given_up: Mapping[str, str] = field(default_factory=dict[str, str])

    def say(self, **changes: Any) -> None:
        for name, value in changes.items():
            setattr(self, name, value)
        self.controller.follow(self.run, self.wanted, self.busy, self.given_up)


@dataclass
class Site:
    """One home. Its store has the clock of the cloud, which a test can move."""

    cloud: Cloud
    settings: config.Settings
    store: Any
    kept: Any  # the keeper's own: a store is used by one thread, and a keeper has another than the test
    thread: StoreThread

    def wants(self, **wanted: Any) -> None:
        """Make the pool, or change what it should be."""
        known = any(pool.name == NAME for pool in self.store.pools.all())
        before = (
            self.store.pools.get(NAME).settings
            if known
            else {"workers": 2, "regions": ("eastus",), "size": (DEFAULT_SIZE,)}
        )
        made = msgspec.convert({**before, **wanted}, PoolSettings).to_json()
        if known:
            self.store.pools.amend(NAME, made)
        else:
            self.store.pools.create(NAME, "azure-vm", made)

    @asynccontextmanager
    async def controller(self, process: str = "test", **how: Any) -> AsyncGenerator[PoolController]:
        async with own_pool(self.settings, self.kept, self.thread, NAME, process, **how) as controller:
            yield controller

    async def settle(self) -> None:
        with anyio.fail_after(PATIENCE_S):
            async with self.controller() as controller:
                await controller.settle()

    @asynccontextmanager
    async def served(self, **how: Any) -> AsyncGenerator[ServedRun]:
        """A controller that serves meanwhile, as beside a run."""
        async with self.controller(**how) as controller, anyio.create_task_group() as tasks:
            tasks.start_soon(controller.serve)
            yield ServedRun(controller)
            tasks.cancel_scope.cancel()

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until something holds; another process may be the one that sees to it."""
        with anyio.fail_after(PATIENCE_S):
            while not holds():  # noqa: ASYNC110 - a store tells nobody
                await anyio.sleep(0.02)

    async def looked(self) -> None:
        """Wait until whoever keeps the pool has looked at it, from now on, and acted on what it saw."""
        before = self._lists()
        await self.until(lambda: self._lists() >= before + 2)

    def _lists(self) -> int:
        """How often our VMs were listed."""
        found = self.cloud.exchanges("GET", "/virtualMachines")
        return sum(each["path"].endswith("/virtualMachines") and "resourceGroups" in each["path"] for each in found)

    # Looking

    def hosts(self, *, gone: bool = False) -> list[PoolHost]:
        return self.store.hosts.of_pool(NAME, gone=gone)

    def host(self, name: str) -> PoolHost:
        return next(host for host in self.hosts(gone=True) if host.name == name)

    def facts(self, name: str) -> MachineFacts:
        return facts_of(self.host(name))

    def count(self, state: str) -> int:
        return list(self.states().values()).count(state)

    def states(self, *, gone: bool = False) -> dict[str, str]:
        return {host.name: str(host.state) for host in self.hosts(gone=gone)}

    def reason(self) -> tuple[str, str]:
        """Why the pool makes no more machines: cause and message; empty where it says nothing."""
        reason = self.store.pools.get(NAME).reason
        return (reason["cause"], reason["message"]) if reason else ("", "")

    def told(self, *types: str) -> list[str]:
        """The types of the pool's events, of those that are named or of all."""
        return [event.type for event in self.store.events.of_run(f"pool:{NAME}") if not types or event.type in types]

    def set_desired(self, desired: DesiredState, *names: str) -> None:
        self.store.hosts.set_desired(NAME, list(names) or [host.name for host in self.hosts()], desired, "test")

    def creations(self) -> int:
        """How often the cloud was asked for a VM, whatever it said."""
        return len(self.cloud.exchanges("PUT", "virtualMachines/"))

    async def powers(self) -> dict[str, str | None]:
        return {view.name: view.power for view in await self.cloud.vms.list(NAME)}

    # Money and time

    def advance(self, seconds: float) -> None:
        """Let time pass, for the cloud and for the store."""
        self.cloud.emulator.world.clock.advance(seconds)

    def fault(self, **fault: Any) -> None:
        self.cloud.emulator.world.faults.add(Fault(**fault))

    def shown_usd(self) -> float:
        return total_usd(self.hosts(gone=True), self.store.now())

    async def billed_usd(self) -> float:
        return (await self.cloud.control("GET", "bill"))["usd"]

    async def leaks(self) -> dict[str, Any]:
        """What is left in the cloud but for the group itself."""
        found = await self.cloud.control("GET", "leaks")
        left = {kind: count for kind, count in found["resources"].items() if "resourceGroups" not in kind}
        return {**found, "resources": left}


@asynccontextmanager
async def site(folder: Path, scenario: Scenario | None = None, **options: Any) -> AsyncGenerator[Site]:
    async with cloud(scenario, **options) as here, opened(here, folder / "home") as made:
        yield made


@asynccontextmanager
async def opened(here: Cloud, home: Path) -> AsyncGenerator[Site]:
    """Another home in front of the same cloud."""
    settings = config.load(home, environ=here.emulator.settings(), folder=home.parent)
    store, kept = (open_store(settings.home, here.emulator.world.clock.now) for _ in range(2))
    try:
        yield Site(here, settings, store, kept, StoreThread())
    finally:
        store.close()
        kept.close()
