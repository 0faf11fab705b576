"""The contract of a store: pools that consist of other pools."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from tests.support.store import cases

from evalfleet.errors import WrongState
from evalfleet.model import HostState, Policy
from evalfleet.store.store import Store
from evalfleet.testing.clock import FakeClock


def make(store: Store, *names: str) -> None:
    for name in names:
        store.pools.create(name, "azure-vm", {})
    store.pools.create("all", "tiers", {})
    store.tiers.set("all", dict.fromkeys(names, 1.5), {"state": "closed"})


class TierContract:
    """A tier's breaker is moved by one process at a time; what runs want of a tier is part of its pool's demand."""

    def test_a_pool_keeps_the_order_of_its_tiers_and_what_it_knows_of_those_that_stay(self, store: Store) -> None:
        make(store, "b", "a")
        b, a = store.tiers.of_pool("all")
        assert (b.name, a.name, a.base_usd, a.usd_per_hour, a.breaker) == ("b", "a", 1.5, None, {"state": "closed"})
        assert store.tiers.pools_of("a") == ["all"]
        assert store.tiers.of_pool("a") == []
        store.tiers.note_price("all", "a", 0.25)
        store.pools.create("c", "azure-vm", {})
        store.tiers.set("all", {"c": 0.0, "a": 9.0}, {"state": "closed"})
        assert [(one.name, one.base_usd, one.usd_per_hour) for one in store.tiers.of_pool("all")] == [
            ("c", 0.0, None),
            ("a", 1.5, 0.25),
        ]

    def test_a_breaker_is_moved_by_who_read_it_last(self, store: Store) -> None:
        make(store, "a")
        [tier] = store.tiers.of_pool("all")
        after = {"state": "open", "since": 1.25, "failed": {"ä": "no answer"}}
        moved = store.tiers.move(tier, after, "tier.opened", {"reason": "no answer"})
        assert moved is not None
        assert moved == replace(tier, breaker=after)
        assert store.tiers.move(tier, {"state": "closed"}, "tier.closed", {}) is None
        assert store.tiers.of_pool("all") == [moved]
        assert store.tiers.move(moved, {"state": "half_open"}, None, {}) is not None
        last = store.events.last("pool:all")
        assert last is not None
        assert (last.type, last.data) == ("tier.opened", {"tier": "a", "reason": "no answer"})

    def test_what_runs_want_of_a_tier_is_demand_of_its_pool(self, store: Store) -> None:
        make(store, "a", "b")
        run = cases.drive(store, 4, policy=Policy(workers=4, pool="all"))
        direct = cases.drive(store, 3, policy=Policy(workers=2, pool="a"))
        store.tiers.want("all", run.id, {"a": (3, "used"), "b": (0, "not needed")})
        store.tiers.want("all", run.id, {"a": (4, "used: full")})
        assert {one.run_id: one.wanted for one in store.pools.demand("a")} == {run.id: 4, direct.id: 2}
        assert [one.wanted for one in store.pools.demand("b")] == [0]
        assert [(one.tier, one.wanted, one.why, one.driven) for one in store.tiers.demand(pool="all")] == [
            ("a", 4, "used: full", True),
            ("b", 0, "not needed", True),
        ]
        store.runs.leave(run)
        assert [one.wanted for one in store.pools.demand("a") if one.run_id == run.id] == [0]
        store.tiers.forget_run(run.id)
        assert store.tiers.demand(pool="all") == []

    def test_a_tier_is_not_deleted_before_the_pool_that_it_is_a_tier_of(self, store: Store) -> None:
        make(store, "a")
        for refused in (store.pools.delete, store.pools.mark_for_deletion):
            with pytest.raises(WrongState, match="'a' is a tier of pool 'all'"):
                refused("a")
        store.pools.delete("all")
        assert store.tiers.of_pool("all") == []
        store.pools.delete("a")

    def test_starts_are_those_whose_end_is_known(self, store: Store, clock: FakeClock) -> None:
        make(store, "a")
        owned = store.pools.take("a", "me")
        first, second, third, _ = store.hosts.request("a", "m-", [{}, {}, {}, {}])
        clock.advance(40)
        ready = cases.move_host(store, owned, replace(first, state=HostState.READY))
        assert ready.state is HostState.READY
        clock.advance(10)
        store.hosts.move(owned, HostState.REQUESTED, replace(second, state=HostState.GONE))
        ordered = store.hosts.move(owned, HostState.REQUESTED, replace(third, state=HostState.CREATING))
        assert ordered is not None
        store.hosts.move(owned, HostState.CREATING, replace(ordered, state=HostState.LOST))
        assert sorted(store.tiers.starts("a"), key=str) == [40.0, None]
