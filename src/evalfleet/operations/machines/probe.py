"""Asks the machines of a pool, now: whether they are there, and whether the guests in their containers answer."""

from __future__ import annotations

from msgspec.structs import replace

from evalfleet import config
from evalfleet.answers.pools import GuestRow, HostRow, PoolFacts
from evalfleet.benchmarks import registry as benchmarks
from evalfleet.benchmarks.base import Guests
from evalfleet.benchmarks.screens import guest_orders, guests_of
from evalfleet.hosts.probe import LIMIT_S, probe
from evalfleet.model import JsonObject, Pool
from evalfleet.operations.machines.pools import status
from evalfleet.pools.kinds import registry
from evalfleet.pools.kinds.base import AsksHosts
from evalfleet.store.home.facts import identified
from evalfleet.store.reader import StoreReader

ABSENT = ("missing", "unknown")  # there may be no such container, and no Docker


async def probed(settings: config.Settings, store: StoreReader, pool: Pool, limit_s: float = LIMIT_S) -> PoolFacts:
    """The pool as `status` has it, with what its machines answered. All are asked at the same time, and have `limit_s`.

    The guests are those of the pool's benchmark. Where none is known, as with machines that exist, they are those that a
    benchmark would have and that are there.
    """
    facts = status(settings, store, pool)
    known = pool.settings.get("benchmark")
    guests = _guests(settings, known)
    kind, home = registry.kind_of(pool), identified(settings.home, store.home.identity())
    orders = guest_orders(guests, limit_s / 4) if guests is not None else None
    if isinstance(kind, AsksHosts):
        found = await kind.probe(pool, home, limit_s)
    else:
        found = await probe(kind.reachable(pool, store.hosts.of_pool(pool.name)), home, limit_s, orders)
    done = {host: row["completed"] for host, row in store.pools.tallies(pool)["hosts"].items()}
    by_container = store.pools.container_tallies(pool)

    def asked(row: HostRow) -> HostRow:
        answer = found.get(row.host)
        if answer is None:  # there is no such machine now
            return row
        rows: list[JsonObject] = answer.pop("guests", None) or []
        error = answer.pop("guests_error", None)
        if error is not None and guests is not None and known:
            rows = [{"container": one, "state": "unknown", "seen": error, "port": None} for one in guests.containers]
        shown = [
            _guest_row(row.host, one, by_container.get((row.host, one["container"]), 0))
            for one in rows
            if known or one["state"] not in ABSENT
        ]
        return replace(row, probe=answer, tasks_done=done.get(row.host, 0), guests=shown or None)

    return replace(facts, hosts=[asked(row) for row in facts.hosts])


def _guests(settings: config.Settings, benchmark: str | None) -> Guests | None:
    names = [benchmark] if benchmark else benchmarks.names()
    return next((found for name in names if (found := guests_of(name, settings)) is not None), None)


def _guest_row(host: str, told: JsonObject, done: int) -> GuestRow:
    port = told["port"]
    return GuestRow(
        container=told["container"],
        state=told["state"],
        seen=told["seen"],
        tasks_done=done,
        screen_port=port,
        screen=None if port is None else f"evalfleet pool vnc {host} --port {port}",
    )
