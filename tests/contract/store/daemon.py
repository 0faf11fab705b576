"""The contract of a store: what the processes of a home share."""

from __future__ import annotations

from evalfleet.store.store import Store
from evalfleet.testing.clock import FakeClock


class DaemonContract:
    """The children of a server, and the one sender of alerts."""

    def test_children_are_remembered_by_their_kind(self, store: Store) -> None:
        store.daemon.remember_child("pool", "lab", retry=False)
        store.daemon.remember_child("pool", "lab", retry=True)
        store.daemon.remember_child("run", "lab", retry=False)
        assert (store.daemon.children("pool"), store.daemon.children("run")) == ({"lab": True}, {"lab": False})
        store.daemon.forget_child("pool", "lab")
        store.daemon.forget_child("pool", "never there")
        assert (store.daemon.children("pool"), store.daemon.children("run")) == ({}, {"lab": False})

    def test_one_service_sends_alerts_until_it_releases_them(self, store: Store) -> None:
        assert store.daemon.claim_alerts("a", 30)
        assert not store.daemon.claim_alerts("b", 30)
        store.daemon.release_alerts("b")
        assert not store.daemon.claim_alerts("b", 30), "only the sender can release"
        store.daemon.release_alerts("a")
        assert store.daemon.claim_alerts("b", 30)

    def test_a_sender_that_does_not_renew_is_replaced(self, store: Store, clock: FakeClock) -> None:
        assert store.daemon.claim_alerts("a", 30)
        clock.advance(20)
        assert store.daemon.claim_alerts("a", 30), "renewed"
        clock.advance(20)
        assert not store.daemon.claim_alerts("b", 30)
        clock.advance(11)
        assert store.daemon.claim_alerts("b", 30)
        assert not store.daemon.claim_alerts("a", 30), "it has lost them"
