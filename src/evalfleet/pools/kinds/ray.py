"""Pools of actors on a Ray cluster that exists."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import msgspec

from evalfleet.config import Settings
from evalfleet.core.readiness import Notice
from evalfleet.hosts.access import ReachableHost, UnavailableHost
from evalfleet.hosts.ray.settings import RayHostSpec, host_specs, settings_from, settings_of
from evalfleet.hosts.wheels import plain_name
from evalfleet.layout import Home
from evalfleet.model import JsonObject, Pool, PoolHost, Run
from evalfleet.store.home.facts import identified
from evalfleet.store.open import open_reader
from evalfleet.store.reader import StoreReader

if TYPE_CHECKING:
    from evalfleet.hosts.ray.fleet import RayFleet


class RayKind:
    """Implements `PoolKind`, `KeepsFolders`, `KeepsRunners` and `AsksHosts`."""

    name = "ray"
    title = "Actors on a Ray cluster"
    creates_machines = False
    options = ("address", "workers", "min", "max", "slots", "idle", "max_hours", "options")

    def settings(self, options: Mapping[str, Any], settings: Settings) -> JsonObject:
        return msgspec.to_builtins(settings_from(options))

    def hosts(self, pool: Pool, rows: Sequence[PoolHost]) -> list[RayHostSpec]:
        return host_specs(pool)

    def slots(self, pool: Pool) -> int:
        wanted = settings_of(pool)
        return wanted.max * wanted.slots

    def reachable(self, pool: Pool, rows: Sequence[PoolHost]) -> Sequence[ReachableHost | UnavailableHost]:
        return ()

    def fleet(
        self, settings: Settings, store: StoreReader, pool: Pool, run: Run, process: str, notice: Notice
    ) -> RayFleet:
        from evalfleet.hosts.ray.fleet import RayFleet

        home = identified(settings.home, store.home.identity())

        def loads() -> dict[str, int]:
            reader = open_reader(settings.home)
            if reader is None:
                return {}
            with closing(reader):
                return reader.hosts.live_counts()

        return RayFleet(home, pool, notice, loads, store.hosts.work().keys(), _packages(run))

    async def probe(self, pool: Pool, home: Home, limit_s: float) -> dict[str, JsonObject]:
        from evalfleet.hosts.ray.commands import probe

        return await probe(pool, home, limit_s)

    async def leave(self, pool: Pool, others: Sequence[Pool], home: Home) -> dict[str, str]:
        from evalfleet.hosts.ray.commands import end_actors

        return await end_actors(pool, home)

    async def end_idle_runners(
        self, pool: Pool, busy: Collection[str], home: Home, say: Callable[[str], None]
    ) -> list[str]:
        from evalfleet.hosts.ray.commands import end_idle_actors

        return await end_idle_actors(pool, busy, home, say)


def _packages(run: Run) -> dict[str, str]:
    """What the run's tasks need in the Python of the cluster, in the versions that are here."""
    shipped = run.policy.tools.shipped if run.policy.tools is not None else ()
    return {name: version(name) for name in map(plain_name, shipped)}


KIND = RayKind()
