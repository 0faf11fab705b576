"""Looks now and then for what is ours in the cloud and has no purpose any more, and says so. It deletes nothing: `evalfleet reap` does."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio

from evalfleet.azure import settings as azure_settings
from evalfleet.config import Settings
from evalfleet.daemon.alerts.pool_facts import FOUND
from evalfleet.daemon.alerts.state import HOME
from evalfleet.daemon.readers import Readers
from evalfleet.errors import EvalfleetError
from evalfleet.store.base.store import Store, StoreReader

Write = Callable[[Callable[[Store], Any]], Awaitable[Any]]


class Orphans:
    """Used in the event loop's thread.

    Only a home that has rented machines looks: others must not speak to a cloud that they do not use.
    """

    def __init__(self, settings: Settings, readers: Readers, write: Write, notice: Callable[[str], None]) -> None:
        self._settings = settings
        self._readers = readers
        self._write = write
        self._notice = notice
        self._rents = False
        self._before: frozenset[str] = frozenset()  # what the last look found
        self._told: frozenset[str] = frozenset()

    async def serve(self) -> None:
        if not azure_settings.reachable(self._settings):
            return
        while True:
            try:
                self._rents = self._rents or await self._readers.call(_rents)
                if self._rents:
                    await self._look()
            except (EvalfleetError, OSError) as error:  # the cloud does not answer, or the store is busy
                self._notice(f"alerts: looking for orphans: {error}")
            await anyio.sleep(self._settings.alerts.reap_s)

    async def _look(self) -> None:
        """Tell of what two looks in a row found: what is just being made or deleted is no orphan."""
        from evalfleet.azure import clients
        from evalfleet.azure.vms import Vms
        from evalfleet.pools.reaper import purposeless

        async with clients.opened(azure_settings.of(self._settings)) as opened:
            vms = Vms(opened)
            owned = await vms.owned()
            found = await self._readers.call(lambda store: purposeless(owned, store))
        names = frozenset(each.resource.name for each in found)
        lasting, self._before = names & self._before, names
        if not lasting <= self._told:
            data = {"found": len(lasting), "left": len(lasting), "names": sorted(lasting)[:20], "by": "evalfleet serve"}
            await self._write(lambda store: store.note(HOME, FOUND, data))
        self._told = lasting


def _rents(store: StoreReader) -> bool:
    return any(pool.backend == "azure-vm" for pool in store.pools())
