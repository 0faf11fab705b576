"""Pools that consist of other pools: how each of their tiers is doing, and what runs want of it."""

from __future__ import annotations

from collections.abc import Mapping

from evalfleet.model import JsonObject, StoredTier, TierDemand
from evalfleet.store import rows
from evalfleet.store.database.base import Database, Row
from evalfleet.store.events import Events
from evalfleet.store.pools.queries import pool_subject

_STARTS = 50  # of the newest machines


class TierQueries:
    def __init__(self, database: Database) -> None:
        self._db = database

    def of_pool(self, pool: str) -> list[StoredTier]:
        """Its tiers, in their order; none of a pool that has machines of its own."""
        return [_tier(row) for row in self._db.rows("select_tiers", pool=pool)]

    def pools_of(self, tier: str) -> list[str]:
        """The pools that the pool `tier` is a tier of."""
        return [row["pool"] for row in self._db.rows("select_pools_of_tier", name=tier)]

    def demand(self, *, tier: str | None = None, pool: str | None = None) -> list[TierDemand]:
        """What runs that go on want of one tier, or of all tiers of a pool."""
        return [
            rows.record(TierDemand, row, driven=self._db.lock_owner(row["run_id"]) is not None)
            for row in self._db.rows("select_tier_demand", tier=tier, pool=pool)
        ]

    def starts(self, pool: str) -> list[float | None]:
        """After how many seconds the newest machines of a pool were ready; None: one never was."""
        found = self._db.rows("select_tier_starts", pool=pool, limit=_STARTS)
        return [None if row["ready_at"] is None else row["ready_at"] - row["requested_at"] for row in found]


class Tiers(TierQueries):
    def __init__(self, database: Database, events: Events) -> None:
        super().__init__(database)
        self._events = events

    def set(self, pool: str, spent_usd: Mapping[str, float], breaker: JsonObject) -> None:
        """Let a pool consist of these, in their order.

        Args:
            spent_usd: by name, what the machines of each have cost until now.
            breaker: of a tier that is new.
        """
        with self._db.transaction():
            for place, (name, usd) in enumerate(spent_usd.items()):
                values = {"pool": pool, "name": name, "place": place, "base_usd": usd}
                self._db.rows("insert_tier", breaker=rows.to_json(breaker), **values)
            self._db.rows("drop_tiers", pool=pool, kept=rows.to_json(list(spent_usd)))

    def move(self, tier: StoredTier, breaker: JsonObject, event: str | None, data: JsonObject) -> StoredTier | None:
        """Store the breaker of a tier, if it is still as it was read; with an event, if its state is another. None: another
        process has moved it."""
        with self._db.transaction():
            moved = self._db.rows(
                "move_tier",
                pool=tier.pool,
                name=tier.name,
                breaker_read=rows.to_json(tier.breaker),
                breaker=rows.to_json(breaker),
            )
            if moved and event is not None:
                self._events.write(pool_subject(tier.pool), event, {"tier": tier.name, **data})
            return _tier(moved[0]) if moved else None

    def note_price(self, pool: str, name: str, usd_per_hour: float) -> None:
        with self._db.transaction():
            self._db.rows("price_tier", pool=pool, name=name, usd_per_hour=usd_per_hour)

    def want(self, pool: str, run_id: str, wanted: Mapping[str, tuple[int, str]]) -> None:
        """Store what a run could use of each tier, and why."""
        with self._db.transaction():
            for tier, (workers, why) in wanted.items():
                self._db.rows("upsert_tier_demand", pool=pool, run_id=run_id, tier=tier, workers=workers, why=why)

    def spill(self, pool: str, run_id: str, tier: str, why: str) -> None:
        """Say that a run uses a further tier because those before it have no room. Event `tier.spilled`."""
        self._events.note(pool_subject(pool), "tier.spilled", {"tier": tier, "run": run_id, "reason": why})

    def forget_run(self, run_id: str) -> None:
        """A run wants nothing of any tier any more."""
        with self._db.transaction():
            self._db.rows("drop_tier_demand", pool=None, run_id=run_id)


def _tier(row: Row) -> StoredTier:
    return rows.record(StoredTier, row, breaker=rows.from_json(row["breaker"]) or {})
