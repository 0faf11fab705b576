"""The contract of a store: the machines that are made for pools."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from itertools import product

import pytest
from msgspec.structs import replace
from tests.support.store import cases

from evalfleet.core import transitions
from evalfleet.errors import NotFound, Owned, WrongState
from evalfleet.model import DesiredState, HostState, Policy, PoolState
from evalfleet.store.store import Store
from evalfleet.testing.clock import FakeClock


class HostContract:
    """Intent first: a machine is in the store before it is anywhere else."""

    def test_machines_are_requested(self, store: Store) -> None:
        store.pools.create("p", "azure-vm", {})
        first, second = store.hosts.request("p", "eval-", [{"size": "a"}, {"size": "b"}])
        assert (first.name, first.number, first.facts) == ("eval-1", 1, {"size": "a"})
        assert (first.desired, first.state, first.gone_at) == (DesiredState.RUNNING, HostState.REQUESTED, None)
        assert store.hosts.of_pool("p") == [first, second]
        assert [event.type for event in store.events.of_run("pool:p")] == ["pool.created", *["worker.requested"] * 2]

    def test_a_name_is_given_once_in_a_home(self, store: Store) -> None:
        pool = store.pools.create("p", "azure-vm", {})
        other = store.pools.create("q", "azure-vm", {})
        [first] = store.hosts.request(pool.name, "eval-", [{}])
        [second] = store.hosts.request(other.name, "eval-", [{}])
        owned = store.pools.take("p", "me")
        store.hosts.move(owned, HostState.REQUESTED, replace(first, state=HostState.GONE))
        [third] = store.hosts.request(pool.name, "eval-", [{}])
        assert [first.name, second.name, third.name] == ["eval-1", "eval-2", "eval-3"]
        assert [host.name for host in store.hosts.of_pool("p")] == ["eval-3"]
        assert [host.name for host in store.hosts.of_pool("p", gone=True)] == ["eval-1", "eval-3"]

    def test_only_the_owner_says_how_far_a_host_is(self, store: Store, clock: FakeClock) -> None:
        store.pools.create("p", "azure-vm", {})
        [host] = store.hosts.request("p", "eval-", [{}])
        before = store.pools.take("p", "one")
        owned = store.pools.take("p", "one again")
        creating = replace(host, state=HostState.CREATING, facts={"region": "eastus"}, made_at=5.0, allocated_since=6.0)
        assert store.hosts.move(before, HostState.REQUESTED, creating) is None
        clock.advance(3)
        moved = store.hosts.move(owned, HostState.REQUESTED, creating)
        assert moved is not None
        assert moved == replace(creating, updated_at=store.now())
        assert store.hosts.move(owned, HostState.REQUESTED, creating) is None  # it has changed meanwhile
        last = store.events.last("pool:p")
        assert last is not None
        assert (last.type, last.data["host"], last.data["from"]) == ("worker.ordered", "eval-1", "requested")

    @pytest.mark.parametrize("before", list(HostState))
    def test_a_host_moves_only_along_the_edges(self, store: Store, before: HostState) -> None:
        store.pools.create("p", "azure-vm", {})
        owned = store.pools.take("p", "me")
        for after in HostState:
            [made] = store.hosts.request("p", "eval-", [{}])
            host = cases.move_host(store, owned, replace(made, state=before))
            events = len(store.events.of_run("pool:p", limit=1000))
            if before is after or transitions.allowed(before, after):
                moved = store.hosts.move(owned, before, replace(host, state=after, reason="why"))
                assert moved is not None
                assert (moved.state, moved.reason) == (after, "why")
                assert len(store.events.of_run("pool:p", limit=1000)) == events + (before is not after)
            else:
                with pytest.raises(WrongState, match=f"from {before} to {after}"):
                    store.hosts.move(owned, before, replace(host, state=after))
                assert [row for row in store.hosts.of_pool("p", gone=True) if row.name == host.name] == [host]
                assert len(store.events.of_run("pool:p", limit=1000)) == events

    def test_a_stale_owner_is_told_so_also_on_an_edge(self, store: Store) -> None:
        store.pools.create("p", "azure-vm", {})
        before = store.pools.take("p", "one")
        store.pools.take("p", "one again")
        [host] = store.hosts.request("p", "eval-", [{}])
        for after in (HostState.CREATING, HostState.GONE, HostState.REQUESTED):
            assert store.hosts.move(before, HostState.REQUESTED, replace(host, state=after)) is None

    @pytest.mark.parametrize(("before", "after"), list(product(DesiredState, DesiredState)))
    def test_what_is_desired_changes_only_along_the_edges(
        self, store: Store, before: DesiredState, after: DesiredState
    ) -> None:
        store.pools.create("p", "azure-vm", {})
        store.hosts.request("p", "eval-", [{}])
        store.hosts.set_desired("p", ["eval-1"], before, "")
        changed = store.hosts.set_desired("p", ["eval-1"], after, "")
        assert bool(changed) == transitions.allowed(before, after)
        assert store.hosts.of_pool("p")[0].desired is (after if changed else before)

    @pytest.mark.parametrize(("before", "after"), list(product(PoolState, PoolState)))
    def test_a_pool_moves_only_along_the_edges(self, store: Store, before: PoolState, after: PoolState) -> None:
        store.pools.create("p", "azure-vm", {})
        moves: dict[PoolState, Callable[[], object]] = {
            PoolState.ACTIVE: lambda: store.pools.explain("p", None),
            PoolState.PAUSED: lambda: store.pools.explain("p", {"cause": "quota", "message": "ask for more"}),
            PoolState.DELETING: lambda: store.pools.mark_for_deletion("p"),
            PoolState.DELETED: lambda: store.pools.delete("p"),
        }

        def state() -> PoolState:
            return next((pool.state for pool in store.pools.all()), PoolState.DELETED)

        moves[before]()
        assert state() is before
        with suppress(NotFound):
            moves[after]()
        assert state() is (after if before is after or transitions.allowed(before, after) else before)

    def test_a_pool_that_is_being_deleted_gets_no_more_machines(self, store: Store) -> None:
        store.pools.create("p", "azure-vm", {})
        store.hosts.request("p", "eval-", [{}])
        for _ in range(2):
            store.pools.mark_for_deletion("p")
        assert store.hosts.request("p", "eval-", [{}, {}]) == []
        assert [host.desired for host in store.hosts.of_pool("p")] == [DesiredState.GONE]
        types = [event.type for event in store.events.of_run("pool:p")]
        assert types == ["pool.created", "worker.requested", "pool.deleting", "worker.desired"]

    def test_a_move_does_not_touch_a_wish(self, store: Store) -> None:
        store.pools.create("p", "azure-vm", {})
        [host] = store.hosts.request("p", "eval-", [{}])
        owned = store.pools.take("p", "me")
        [changed] = store.hosts.set_desired("p", ["eval-1"], DesiredState.GONE, "not needed")
        assert changed.desired is DesiredState.GONE
        moved = store.hosts.move(owned, HostState.REQUESTED, replace(host, state=HostState.CREATING))
        assert moved is not None
        assert moved.desired is DesiredState.GONE

    def test_what_is_to_go_stays_so(self, store: Store) -> None:
        store.pools.create("p", "azure-vm", {})
        store.hosts.request("p", "eval-", [{}, {}])
        assert [host.name for host in store.hosts.set_desired("p", ["eval-1", "eval-2"], DesiredState.STOPPED, "")] == [
            "eval-1",
            "eval-2",
        ]
        assert store.hosts.set_desired("p", ["eval-1"], DesiredState.STOPPED, "") == []
        store.hosts.set_desired("p", ["eval-1"], DesiredState.GONE, "")
        assert store.hosts.set_desired("p", ["eval-1"], DesiredState.RUNNING, "") == []
        assert [host.desired for host in store.hosts.of_pool("p")] == [DesiredState.GONE, DesiredState.STOPPED]
        with pytest.raises(NotFound, match="eval-9"):
            store.hosts.set_desired("p", ["eval-9"], DesiredState.GONE, "")

    def test_who_insists_on_a_wish_is_heard_the_second_time_too(self, store: Store) -> None:
        store.pools.create("p", "azure-vm", {})
        store.hosts.request("p", "eval-", [{}])
        assert [host.forced for host in store.hosts.set_desired("p", ["eval-1"], DesiredState.GONE, "")] == [False]
        assert [
            host.forced for host in store.hosts.set_desired("p", ["eval-1"], DesiredState.GONE, "", force=True)
        ] == [True]
        assert store.hosts.set_desired("p", ["eval-1"], DesiredState.GONE, "", force=True) == []
        assert store.hosts.set_desired("p", ["eval-1"], DesiredState.STOPPED, "", force=True) == []
        assert [host.forced for host in store.hosts.of_pool("p")] == [True]

    def test_nothing_is_claimed_on_a_host_that_is_to_go(self, store: Store) -> None:
        store.pools.create("p", "azure-vm", {})
        store.hosts.request("p", "h", [{}])
        run = cases.drive(store, 1)
        store.hosts.set_desired("p", ["h1"], DesiredState.STOPPED, "")
        assert store.attempts.claim(run, cases.new_claim(1)) is None
        store.hosts.set_desired("p", ["h1"], DesiredState.RUNNING, "")
        assert store.attempts.claim(run, cases.new_claim(1)) is not None

    def test_a_pool_has_one_owner(self, store: Store, another: Store) -> None:
        store.pools.create("p", "azure-vm", {})
        owned = store.pools.take("p", "me")
        assert (owned.owner, owned.epoch) == ("me", 1)
        assert another.pools.owner("p") == "me"
        with pytest.raises(Owned, match="me"):
            another.pools.take("p", "other")
        store.pools.leave(owned)
        assert another.pools.owner("p") is None
        assert another.pools.take("p", "other").epoch == 2

    def test_a_pool_goes_after_its_machines(self, store: Store) -> None:
        store.pools.create("p", "azure-vm", {})
        [host] = store.hosts.request("p", "eval-", [{}])
        assert store.pools.mark_for_deletion("p").deleting
        assert store.hosts.of_pool("p")[0].desired is DesiredState.GONE
        with pytest.raises(WrongState, match="eval-1"):
            store.pools.delete("p")
        owned = store.pools.take("p", "me")
        store.hosts.move(owned, HostState.REQUESTED, replace(host, state=HostState.GONE))
        store.pools.delete("p")
        assert store.pools.all() == []
        assert store.hosts.of_pool("p", gone=True) == []

    def test_a_pool_that_a_run_wants_is_not_deleted(self, store: Store) -> None:
        store.pools.create("p", "azure-vm", {})
        store.hosts.request("p", "eval-", [{}])
        cases.submit(store, policy=Policy(pool="p"))
        with pytest.raises(WrongState, match="uses pool"):
            store.pools.mark_for_deletion("p")
        assert store.hosts.of_pool("p")[0].desired is DesiredState.RUNNING

    def test_why_a_pool_makes_no_more(self, store: Store) -> None:
        store.pools.create("p", "azure-vm", {})
        store.pools.explain("p", {"cause": "quota", "message": "ask for more"})
        store.pools.explain("p", {"cause": "quota", "message": "ask for more"})
        assert store.pools.get("p").reason == {"cause": "quota", "message": "ask for more"}
        store.pools.explain("p", None)
        assert store.pools.get("p").reason is None
        types = [event.type for event in store.events.of_run("pool:p")]
        assert types == ["pool.created", "pool.paused", "pool.resumed"]

    def test_what_a_pool_should_be_may_change(self, store: Store) -> None:
        store.pools.create("p", "azure-vm", {"workers": 2})
        assert store.pools.amend("p", {"workers": 3}).settings == {"workers": 3}
        assert store.pools.get("p").settings == {"workers": 3}
