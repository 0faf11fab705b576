"""A controller without a page: takes queued runs and pools of the store, and keeps a child process for each. `serve` has one, too."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
from anyio.abc import TaskStatus
from msgspec import Struct

from evalfleet.config import Settings
from evalfleet.daemon.ability import Ability
from evalfleet.daemon.alerts.access import Access, OwnStore
from evalfleet.daemon.alerts.service import AlertService
from evalfleet.daemon.pool_children import PoolChildren, PoolStanding
from evalfleet.daemon.readers import Readers
from evalfleet.daemon.registration import Registration
from evalfleet.daemon.retention import RetentionService
from evalfleet.daemon.run_children import RunChildren, RunStanding
from evalfleet.daemon.supervisor import ChildSupervisor, Write
from evalfleet.pools.kinds.registry import clouds


class RunDriver(Struct, frozen=True, kw_only=True):
    """Its two supervisors, and its entry among the controllers of the store."""

    registration: Registration
    runs: ChildSupervisor[RunStanding]
    pools: ChildSupervisor[PoolStanding]
    retention: RetentionService

    @classmethod
    def of(
        cls, settings: Settings, readers: Readers, write: Write, notice: Callable[[str], None], *, runs: int
    ) -> RunDriver:
        registration = Registration(settings=settings, runs=runs, notice=notice)
        ability = Ability(settings)
        reachable = not ability.member and any(kind.provider.is_configured(settings) for kind in clouds())
        elsewhere = "the keys to its machines are in the home's first folder" if ability.member else None

        shared: dict[str, Any] = {"settings": settings, "readers": readers, "write": write, "notice": notice}
        return cls(
            registration=registration,
            runs=ChildSupervisor(**shared, registration=registration, of=RunChildren(most=runs, ability=ability)),
            retention=RetentionService(settings.home, settings.retention.rules, notice),
            pools=ChildSupervisor(
                **shared, registration=registration, of=PoolChildren(reachable=reachable, elsewhere=elsewhere)
            ),
        )

    async def serve(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Enter this controller, and drive runs and pools until cancelled."""
        await self.registration.enter()
        task_status.started()
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self.registration.serve)
                group.start_soon(self.runs.serve)
                group.start_soon(self.pools.serve)
                group.start_soon(self.retention.serve)
        finally:  # its processes have ended
            with anyio.CancelScope(shield=True):
                await self.registration.leave()


@asynccontextmanager
async def driving(settings: Settings, *, runs: int, notice: Callable[[str], None]) -> AsyncGenerator[RunDriver]:
    """Drive runs and pools, and send alerts, until the block ends. Raises StoreError: the home cannot be used."""
    own, readers = OwnStore(settings.home), Readers(settings.home)
    driver = RunDriver.of(settings, readers, own.call, notice, runs=runs)
    await own.call(lambda store: store.changed())  # makes the home, which readers do not
    readers.open()
    try:
        async with anyio.create_task_group() as group:
            await group.start(driver.serve)
            group.start_soon(AlertService(settings, Access(read=readers.call, write=own.call, notice=notice)).serve)
            yield driver
            group.cancel_scope.cancel()
    finally:
        with anyio.CancelScope(shield=True):
            await own.close()
            readers.close()
