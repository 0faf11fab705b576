"""The contract of a store: what the processes of a home share."""

from __future__ import annotations

import os

from evalfleet.model import Policy, TaskSpec
from evalfleet.store.controllers import Controller, Liveness
from evalfleet.store.daemon import ChildRow
from evalfleet.store.store import Store
from evalfleet.testing.clock import FakeClock


class DaemonContract:
    """The children of a server, and the one sender of alerts."""

    def test_children_are_remembered_by_their_kind(self, store: Store) -> None:
        daemon = store.daemon
        daemon.request_child("pool", "lab")
        daemon.request_child("pool", "lab", retry=True)
        daemon.request_child("run", "lab")
        lab = {"lab": ChildRow("")}
        assert (daemon.children("pool"), daemon.children("run")) == ({"lab": ChildRow("", True)}, lab)
        daemon.forget_child("pool", "lab")
        daemon.forget_child("pool", "never there")
        assert (daemon.children("pool"), daemon.children("run")) == ({}, lab)

    def test_one_controller_looks_after_a_child(self, store: Store, another: Store) -> None:
        assert store.daemon.claim_child("run", "r", "a")
        assert store.daemon.claim_child("run", "r", "a", retry=True), "it does already"
        assert not another.daemon.claim_child("run", "r", "b")
        another.daemon.forget_child("run", "r", "b")
        another.daemon.release_child("run", "r", "b")
        assert another.daemon.children("run") == {"r": ChildRow("a", True)}
        assert another.daemon.claim_child("run", "r", "b", instead_of="a"), "a is gone"
        store.daemon.release_child("run", "r", "a")
        assert store.daemon.children("run") == {"r": ChildRow("b")}
        another.daemon.release_child("run", "r", "b")
        assert store.daemon.claim_child("run", "r", "a")

    def test_a_controller_is_there_until_it_leaves_or_dies(
        self, store: Store, another: Store, clock: FakeClock
    ) -> None:
        one = Controller(id="a", member="", host="box", path="/home", pid=1, since=clock(), runs=4)
        store.controllers.enter(one)
        ((found, liveness),) = another.controllers.all()
        assert (found.host, found.runs, found.pid, liveness) == ("box", 4, os.getpid(), Liveness.ALIVE)
        store.daemon.claim_child("run", "r", "a")
        another.controllers.strike("a")
        assert (another.controllers.all(), another.daemon.children("run")) == ([], {"r": ChildRow("a")})
        store.controllers.set_waits("a", {"q": "its key is elsewhere"})
        assert another.controllers.waits() == {"q": {"a": "its key is elsewhere"}}
        store.controllers.leave("a")
        assert (another.controllers.all(), another.controllers.waits()) == ([], {})
        assert another.daemon.children("run") == {"r": ChildRow("")}, "any other may take it"

    def test_runs_that_no_controller_took_say_what_they_need(self, store: Store) -> None:
        spec = {"key": "k", "domain": "d", "command": ("true",)}
        asks = TaskSpec(**spec, secrets=("B", "A"))
        local = store.runs.submit("local", Policy(), [TaskSpec(**spec)], folder="/f", base_env={})
        pooled = store.runs.submit("pooled", Policy(pool="lab"), [asks], folder="/f", base_env={})
        filed = store.runs.submit("filed", Policy(pool="lab", files=("x",)), [asks], folder="/f", base_env={})
        assert [(one.id, one.pool, one.need.member, one.need.secrets) for one in store.controllers.untaken()] == [
            (local.id, None, "", ()),
            (pooled.id, "lab", None, ("A", "B")),
            (filed.id, "lab", "", ("A", "B")),
        ]
        assert "x" in store.controllers.need(filed).why
        store.daemon.claim_child("run", pooled.id, "a")
        assert [one.id for one in store.controllers.untaken()] == [local.id, filed.id]

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
