"""The contract of a store: the machines that are made for pools."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from itertools import product

import pytest
from msgspec.structs import replace

from evalfleet.core import transitions
from evalfleet.errors import NotFound, Owned, WrongState
from evalfleet.model import DesiredState, HostState, Policy, PoolState
from evalfleet.store.base.store import Store
from evalfleet.testing.clock import FakeClock
from evalfleet.testing.store import cases


class HostContract:
    """Intent first: a machine is in the store before it is anywhere else."""

    def test_machines_are_requested(self, store: Store) -> None:
        store.create_pool("p", "azure-vm", {})
        first, second = store.request_hosts("p", "eval-", [{"size": "a"}, {"size": "b"}])
        assert (first.name, first.number, first.facts) == ("eval-1", 1, {"size": "a"})
        assert (first.desired, first.state, first.gone_at) == (DesiredState.RUNNING, HostState.REQUESTED, None)
        assert store.hosts("p") == [first, second]
        assert [event.type for event in store.events("pool:p")] == ["pool.created", *["worker.requested"] * 2]

    def test_a_name_is_given_once_in_a_home(self, store: Store) -> None:
        pool = store.create_pool("p", "azure-vm", {})
        other = store.create_pool("q", "azure-vm", {})
        [first] = store.request_hosts(pool.name, "eval-", [{}])
        [second] = store.request_hosts(other.name, "eval-", [{}])
        owned = store.take_pool("p", "me")
        store.move_host(owned, HostState.REQUESTED, replace(first, state=HostState.GONE))
        [third] = store.request_hosts(pool.name, "eval-", [{}])
        assert [first.name, second.name, third.name] == ["eval-1", "eval-2", "eval-3"]
        assert [host.name for host in store.hosts("p")] == ["eval-3"]
        assert [host.name for host in store.hosts("p", gone=True)] == ["eval-1", "eval-3"]

    def test_only_the_owner_says_how_far_a_host_is(self, store: Store, clock: FakeClock) -> None:
        store.create_pool("p", "azure-vm", {})
        [host] = store.request_hosts("p", "eval-", [{}])
        before = store.take_pool("p", "one")
        owned = store.take_pool("p", "one again")
        creating = replace(host, state=HostState.CREATING, facts={"region": "eastus"}, made_at=5.0, allocated_since=6.0)
        assert store.move_host(before, HostState.REQUESTED, creating) is None
        clock.advance(3)
        moved = store.move_host(owned, HostState.REQUESTED, creating)
        assert moved is not None
        assert moved == replace(creating, updated_at=store.now())
        assert store.move_host(owned, HostState.REQUESTED, creating) is None  # it is not as it was any more
        last = store.last_event("pool:p")
        assert last is not None
        assert (last.type, last.data["host"], last.data["from"]) == ("worker.ordered", "eval-1", "requested")

    @pytest.mark.parametrize("before", list(HostState))
    def test_a_host_moves_only_along_the_edges(self, store: Store, before: HostState) -> None:
        store.create_pool("p", "azure-vm", {})
        owned = store.take_pool("p", "me")
        for after in HostState:
            [made] = store.request_hosts("p", "eval-", [{}])
            host = cases.move_host(store, owned, replace(made, state=before))
            events = len(store.events("pool:p", limit=1000))
            if before is after or transitions.allowed(before, after):
                moved = store.move_host(owned, before, replace(host, state=after, reason="why"))
                assert moved is not None
                assert (moved.state, moved.reason) == (after, "why")
                assert len(store.events("pool:p", limit=1000)) == events + (before is not after)
            else:
                with pytest.raises(WrongState, match=f"from {before} to {after}"):
                    store.move_host(owned, before, replace(host, state=after))
                assert [row for row in store.hosts("p", gone=True) if row.name == host.name] == [host]
                assert len(store.events("pool:p", limit=1000)) == events

    def test_a_stale_owner_is_told_so_also_on_an_edge(self, store: Store) -> None:
        store.create_pool("p", "azure-vm", {})
        before = store.take_pool("p", "one")
        store.take_pool("p", "one again")
        [host] = store.request_hosts("p", "eval-", [{}])
        for after in (HostState.CREATING, HostState.GONE, HostState.REQUESTED):
            assert store.move_host(before, HostState.REQUESTED, replace(host, state=after)) is None

    @pytest.mark.parametrize(("before", "after"), list(product(DesiredState, DesiredState)))
    def test_what_is_desired_changes_only_along_the_edges(
        self, store: Store, before: DesiredState, after: DesiredState
    ) -> None:
        store.create_pool("p", "azure-vm", {})
        store.request_hosts("p", "eval-", [{}])
        store.set_desired("p", ["eval-1"], before, "")
        changed = store.set_desired("p", ["eval-1"], after, "")
        assert bool(changed) == transitions.allowed(before, after)
        assert store.hosts("p")[0].desired is (after if changed else before)

    @pytest.mark.parametrize(("before", "after"), list(product(PoolState, PoolState)))
    def test_a_pool_moves_only_along_the_edges(self, store: Store, before: PoolState, after: PoolState) -> None:
        store.create_pool("p", "azure-vm", {})
        moves: dict[PoolState, Callable[[], object]] = {
            PoolState.ACTIVE: lambda: store.explain_pool("p", None),
            PoolState.PAUSED: lambda: store.explain_pool("p", {"cause": "quota", "message": "ask for more"}),
            PoolState.DELETING: lambda: store.mark_pool_for_deletion("p"),
            PoolState.DELETED: lambda: store.delete_pool("p"),
        }

        def state() -> PoolState:
            return next((pool.state for pool in store.pools()), PoolState.DELETED)

        moves[before]()
        assert state() is before
        with suppress(NotFound):
            moves[after]()
        assert state() is (after if before is after or transitions.allowed(before, after) else before)

    def test_a_pool_that_is_being_deleted_gets_no_more_machines(self, store: Store) -> None:
        store.create_pool("p", "azure-vm", {})
        store.request_hosts("p", "eval-", [{}])
        for _ in range(2):
            store.mark_pool_for_deletion("p")
        assert store.request_hosts("p", "eval-", [{}, {}]) == []
        assert [host.desired for host in store.hosts("p")] == [DesiredState.GONE]
        types = [event.type for event in store.events("pool:p")]
        assert types == ["pool.created", "worker.requested", "pool.doomed", "worker.wished"]

    def test_a_move_does_not_touch_a_wish(self, store: Store) -> None:
        store.create_pool("p", "azure-vm", {})
        [host] = store.request_hosts("p", "eval-", [{}])
        owned = store.take_pool("p", "me")
        [wished] = store.set_desired("p", ["eval-1"], DesiredState.GONE, "not needed")
        assert wished.desired is DesiredState.GONE
        moved = store.move_host(owned, HostState.REQUESTED, replace(host, state=HostState.CREATING))
        assert moved is not None
        assert moved.desired is DesiredState.GONE

    def test_what_is_to_go_stays_so(self, store: Store) -> None:
        store.create_pool("p", "azure-vm", {})
        store.request_hosts("p", "eval-", [{}, {}])
        assert [host.name for host in store.set_desired("p", ["eval-1", "eval-2"], DesiredState.STOPPED, "")] == [
            "eval-1",
            "eval-2",
        ]
        assert store.set_desired("p", ["eval-1"], DesiredState.STOPPED, "") == []
        store.set_desired("p", ["eval-1"], DesiredState.GONE, "")
        assert store.set_desired("p", ["eval-1"], DesiredState.RUNNING, "") == []
        assert [host.desired for host in store.hosts("p")] == [DesiredState.GONE, DesiredState.STOPPED]
        with pytest.raises(NotFound, match="eval-9"):
            store.set_desired("p", ["eval-9"], DesiredState.GONE, "")

    def test_who_insists_on_a_wish_is_heard_the_second_time_too(self, store: Store) -> None:
        store.create_pool("p", "azure-vm", {})
        store.request_hosts("p", "eval-", [{}])
        assert [host.forced for host in store.set_desired("p", ["eval-1"], DesiredState.GONE, "")] == [False]
        assert [host.forced for host in store.set_desired("p", ["eval-1"], DesiredState.GONE, "", force=True)] == [True]
        assert store.set_desired("p", ["eval-1"], DesiredState.GONE, "", force=True) == []
        assert store.set_desired("p", ["eval-1"], DesiredState.STOPPED, "", force=True) == []
        assert [host.forced for host in store.hosts("p")] == [True]

    def test_nothing_is_claimed_on_a_host_that_is_to_go(self, store: Store) -> None:
        store.create_pool("p", "azure-vm", {})
        store.request_hosts("p", "h", [{}])
        run = cases.drive(store, 1)
        store.set_desired("p", ["h1"], DesiredState.STOPPED, "")
        assert store.claim(run, cases.new_claim(1)) is None
        store.set_desired("p", ["h1"], DesiredState.RUNNING, "")
        assert store.claim(run, cases.new_claim(1)) is not None

    def test_a_pool_has_one_owner(self, store: Store, another: Store) -> None:
        store.create_pool("p", "azure-vm", {})
        owned = store.take_pool("p", "me")
        assert (owned.owner, owned.epoch) == ("me", 1)
        assert another.pool_owner("p") == "me"
        with pytest.raises(Owned, match="me"):
            another.take_pool("p", "other")
        store.leave_pool(owned)
        assert another.pool_owner("p") is None
        assert another.take_pool("p", "other").epoch == 2

    def test_a_pool_goes_after_its_machines(self, store: Store) -> None:
        store.create_pool("p", "azure-vm", {})
        [host] = store.request_hosts("p", "eval-", [{}])
        assert store.mark_pool_for_deletion("p").deleting
        assert store.hosts("p")[0].desired is DesiredState.GONE
        with pytest.raises(WrongState, match="eval-1"):
            store.delete_pool("p")
        owned = store.take_pool("p", "me")
        store.move_host(owned, HostState.REQUESTED, replace(host, state=HostState.GONE))
        store.delete_pool("p")
        assert store.pools() == []
        assert store.hosts("p", gone=True) == []

    def test_a_pool_that_a_run_wants_is_not_doomed(self, store: Store) -> None:
        store.create_pool("p", "azure-vm", {})
        store.request_hosts("p", "eval-", [{}])
        cases.submit(store, policy=Policy(pool="p"))
        with pytest.raises(WrongState, match="uses pool"):
            store.mark_pool_for_deletion("p")
        assert store.hosts("p")[0].desired is DesiredState.RUNNING

    def test_why_a_pool_makes_no_more(self, store: Store) -> None:
        store.create_pool("p", "azure-vm", {})
        store.explain_pool("p", {"cause": "quota", "message": "ask for more"})
        store.explain_pool("p", {"cause": "quota", "message": "ask for more"})
        assert store.pool("p").reason == {"cause": "quota", "message": "ask for more"}
        store.explain_pool("p", None)
        assert store.pool("p").reason is None
        types = [event.type for event in store.events("pool:p")]
        assert types == ["pool.created", "pool.paused", "pool.resumed"]

    def test_what_a_pool_should_be_may_change(self, store: Store) -> None:
        store.create_pool("p", "azure-vm", {"workers": 2})
        assert store.amend_pool("p", {"workers": 3}).settings == {"workers": 3}
        assert store.pool("p").settings == {"workers": 3}
