"""Looks now and then for resources of ours in the cloud that no pool needs any more, and tells. `evalfleet reap` deletes them."""

from __future__ import annotations

import anyio

from evalfleet.azure import settings as azure_settings
from evalfleet.config import Settings
from evalfleet.daemon.alerts.access import Access
from evalfleet.daemon.alerts.pool_facts import FOUND
from evalfleet.daemon.alerts.state import HOME
from evalfleet.errors import EvalfleetError
from evalfleet.store.reader import StoreReader


class Orphans:
    """Used in the event loop's thread.

    Only a home that has rented machines looks: others must not contact a cloud that they do not use.
    """

    def __init__(self, settings: Settings, access: Access) -> None:
        self._settings = settings
        self._access = access
        self._rents = False
        self._before: frozenset[str] = frozenset()  # what the last look found
        self._told: frozenset[str] = frozenset()

    async def serve(self) -> None:
        if not azure_settings.reachable(self._settings):
            return
        while True:
            try:
                self._rents = self._rents or await self._access.read(_rents)
                if self._rents:
                    await self._look()
            except (EvalfleetError, OSError) as error:  # the cloud does not answer, or the store is busy
                self._access.notice(f"alerts: looking for orphans: {error}")
            await anyio.sleep(self._settings.alerts.reap_s)

    async def _look(self) -> None:
        """Tell of what two looks in a row found: what is just being made or deleted is no orphan."""
        from evalfleet.azure import clients
        from evalfleet.azure.vms import Vms
        from evalfleet.pools.reaper import purposeless

        async with clients.opened(azure_settings.of(self._settings)) as opened:
            vms = Vms(opened)
            owned = await vms.owned()
            found = await self._access.read(lambda store: purposeless(owned, store))
        names = frozenset(each.resource.name for each in found)
        lasting, self._before = names & self._before, names
        if not lasting <= self._told:
            data = {"found": len(lasting), "left": len(lasting), "names": sorted(lasting)[:20], "by": "evalfleet serve"}
            await self._access.write(lambda store: store.events.note(HOME, FOUND, data))
        self._told = lasting


def _rents(store: StoreReader) -> bool:
    return any(pool.backend == "azure-vm" for pool in store.pools.all())
