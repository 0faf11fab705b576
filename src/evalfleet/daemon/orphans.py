"""Looks periodically for evalfleet's cloud resources that no pool needs, and reports them. `evalfleet reap` deletes them."""

from __future__ import annotations

import anyio

from evalfleet.config import Settings
from evalfleet.daemon.alerts.access import Access
from evalfleet.daemon.alerts.pool_facts import FOUND
from evalfleet.daemon.alerts.state import HOME
from evalfleet.errors import EvalfleetError
from evalfleet.layout import Home
from evalfleet.pools.cloud.records import Resource
from evalfleet.pools.kinds.cloud import CloudKind
from evalfleet.pools.kinds.registry import clouds, creates_machines
from evalfleet.store.reader import StoreReader


class Orphans:
    """Used in the event loop's thread.

    Only a home that has rented machines looks: others must not contact a cloud that they do not use.
    """

    def __init__(self, settings: Settings, access: Access) -> None:
        self._settings = settings
        self._access = access
        self._kinds: list[CloudKind] = []
        self._rents = False
        self._before: frozenset[str] = frozenset()  # what the last look found
        self._told: frozenset[str] = frozenset()

    async def serve(self) -> None:
        self._kinds = [kind for kind in clouds(skip_broken=True) if kind.provider.is_configured(self._settings)]
        if not self._kinds:
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
        """Report what two checks in a row found: a resource that is being created or deleted is not an orphan."""
        from evalfleet.pools.cloud.reaper import purposeless

        owned: list[Resource] = []
        for kind in self._kinds:
            async with kind.provider.open(self._settings, Home(self._settings.home)) as cloud:
                owned += await cloud.resources()
        found = await self._access.read(lambda store: purposeless(owned, store))
        names = frozenset(each.resource.name for each in found)
        lasting, self._before = names & self._before, names
        if not lasting <= self._told:
            data = {"found": len(lasting), "left": len(lasting), "names": sorted(lasting)[:20], "by": "evalfleet serve"}
            await self._access.write(lambda store: store.events.note(HOME, FOUND, data))
        self._told = lasting


def _rents(store: StoreReader) -> bool:
    return any(creates_machines(pool) for pool in store.pools.all())
