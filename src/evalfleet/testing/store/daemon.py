"""The contract of a store: what the processes of a home share."""

from __future__ import annotations

from evalfleet.store.base.store import Store
from evalfleet.testing.clock import FakeClock


class DaemonContract:
    """The children of a server, and the one sender of alerts."""

    def test_children_are_remembered_by_their_kind(self, store: Store) -> None:
        store.remember_child("pool", "lab", retry=False)
        store.remember_child("pool", "lab", retry=True)
        store.remember_child("run", "lab", retry=False)
        assert (store.children("pool"), store.children("run")) == ({"lab": True}, {"lab": False})
        store.forget_child("pool", "lab")
        store.forget_child("pool", "never there")
        assert (store.children("pool"), store.children("run")) == ({}, {"lab": False})

    def test_one_service_sends_alerts_until_it_releases_them(self, store: Store) -> None:
        assert store.claim_alerts("a", 30)
        assert not store.claim_alerts("b", 30)
        store.release_alerts("b")
        assert not store.claim_alerts("b", 30), "only the sender can release"
        store.release_alerts("a")
        assert store.claim_alerts("b", 30)

    def test_a_sender_that_does_not_renew_is_replaced(self, store: Store, clock: FakeClock) -> None:
        assert store.claim_alerts("a", 30)
        clock.advance(20)
        assert store.claim_alerts("a", 30), "renewed"
        clock.advance(20)
        assert not store.claim_alerts("b", 30)
        clock.advance(11)
        assert store.claim_alerts("b", 30)
        assert not store.claim_alerts("a", 30), "it has lost them"
