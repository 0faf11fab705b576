"""Pools that consist of other pools, their tiers: work goes to the first that is healthy and has room."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from evalfleet.config import Settings
from evalfleet.config.pools import TIER_OPTIONS
from evalfleet.core.hosts.lifecycle import total_usd
from evalfleet.core.readiness import Notice
from evalfleet.core.tiers import Prefer, TierBreaker, TierTerms
from evalfleet.errors import InputError, NotFound
from evalfleet.hosts.base import Fleet
from evalfleet.model import JsonObject, Pool, PoolHost, Run
from evalfleet.pools.kinds.base import HasMembers
from evalfleet.store.reader import StoreReader
from evalfleet.store.store import Store

LEAST_S = 1.0


class TierSettings(Struct, frozen=True, kw_only=True):
    """Which pools, in which order, for how much."""

    tiers: tuple[str, ...]
    prefer: Prefer = Prefer.ORDER
    budget_usd: float | None = None  # of all of them together
    start_timeout: float = TierTerms().start_s  # seconds in which a host of a tier must serve
    cool_down: float = TierTerms().cool_down_s  # seconds until a tier that failed is tried again, the first time

    @property
    def terms(self) -> TierTerms:
        return TierTerms(cool_down_s=self.cool_down, start_s=self.start_timeout)


class TiersKind:
    """Implements `PoolKind` and `HasMembers`."""

    name = "tiers"
    title = "Other pools, in order (tiers)"
    creates_machines = False
    options = TIER_OPTIONS

    def settings(self, options: Mapping[str, Any], settings: Settings) -> JsonObject:
        if not options.get("tiers"):
            raise InputError("tiers: is missing; it names pools, the most preferred first")
        doubled = next((name for name in options["tiers"] if options["tiers"].count(name) > 1), None)
        if doubled is not None:
            raise InputError(f"tiers: {doubled!r} is named twice")
        for name in ("start_timeout", "cool_down"):
            if options.get(name, LEAST_S) < LEAST_S:
                raise InputError(f"{name}: must be {LEAST_S:g} s or more")
        try:
            return msgspec.to_builtins(msgspec.convert(dict(options), TierSettings))
        except msgspec.ValidationError as error:
            raise InputError(str(error)) from None

    def members(self, pool: Pool) -> tuple[str, ...]:
        return tier_settings(pool).tiers

    def join(self, store: Store, pool: Pool) -> None:
        from evalfleet.pools.kinds.registry import kind_of

        spent: dict[str, float] = {}
        for name in self.members(pool):
            if name == pool.name:
                raise InputError(f"tiers: pool {name!r} cannot be a tier of itself")
            try:
                member = store.pools.get(name)
            except NotFound:
                others = ", ".join(one.name for one in store.pools.all() if one.name != pool.name)
                raise InputError(f"tiers: there is no pool {name!r}; other pools: {others or 'none'}") from None
            if isinstance(kind_of(member), HasMembers):
                raise InputError(f"tiers: pool {name!r} has tiers itself; name them instead")
            if member.deleting:
                raise InputError(f"tiers: pool {name!r} is being deleted")
            spent[name] = total_usd(store.hosts.of_pool(name, gone=True), store.now())
        store.tiers.set(pool.name, spent, TierBreaker(since=store.now()).to_json())

    def hosts(self, pool: Pool, rows: Sequence[PoolHost]) -> tuple[()]:
        return ()

    def slots(self, pool: Pool) -> int:
        return 0

    def reachable(self, pool: Pool, rows: Sequence[PoolHost]) -> tuple[()]:
        return ()

    def fleet(
        self, settings: Settings, store: StoreReader, pool: Pool, run: Run, process: str, notice: Notice
    ) -> Fleet:
        from evalfleet.pools.tiers.fleet import TieredFleet

        return TieredFleet(settings, store, pool, run, process, notice)


def tier_settings(pool: Pool) -> TierSettings:
    return msgspec.convert(pool.settings, TierSettings)


KIND = TiersKind()
