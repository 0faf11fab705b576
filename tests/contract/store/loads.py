"""The contract of a store: how busy hosts are over time."""

from __future__ import annotations

from tests.support.store import cases

from evalfleet.core.hosts.load import KEPT_S, Load, Sample
from evalfleet.store.store import Store
from evalfleet.testing.clock import FakeClock


class LoadContract:
    """Series of hosts."""

    def test_samples_come_back_in_order_and_in_their_range(self, store: Store, clock: FakeClock) -> None:
        clock.advance(600 - store.now() % 600 - 20)  # so that they lie in two pieces
        begun = store.now()
        for step in range(8):
            store.loads.add({"a": [_sample(store, cpu=step / 10)], "b": [_sample(store, cpu=0.5)]})
            clock.advance(5)
        found = store.loads.of_host("a", begun, store.now())
        assert [one.load.cpu for one in found] == [step / 10 for step in range(8)]
        assert [round(one.at - begun) for one in found] == [step * 5 for step in range(8)]
        assert [one.load.cpu for one in store.loads.of_host("a", begun + 12, begun + 21)] == [0.3, 0.4]
        assert store.loads.of_host("nobody", 0, store.now()) == []
        assert {host: len(several) for host, several in store.loads.recent(begun + 26).items()} == {"a": 2, "b": 2}

    def test_what_a_cloud_measured_fills_gaps_of_the_hosts_own(self, store: Store, clock: FakeClock) -> None:
        clock.advance(600 - store.now() % 600)
        begun = store.now()
        rates = {"net_in_bps": 1.0, "net_out_bps": 2.0, "disk_read_bps": 3.0, "disk_write_bps": 4.0}
        for minute in range(9):
            load = Load(cpu=0.5, **rates)
            store.loads.add({"a": [Sample(at=begun + 60 * minute, load=load, from_cloud=True)]})
        store.loads.add({"a": [Sample(at=begun + 245, load=Load(cpu=0.1))]})
        found = store.loads.of_host("a", begun, begun + 600)
        assert [(round(one.at - begun), one.from_cloud) for one in found] == [
            *((60 * minute, True) for minute in range(3)),
            (245, False),
            *((60 * minute, True) for minute in (7, 8)),
        ]
        assert found[0].load == Load(cpu=0.5, **rates)
        clock.advance(600)
        assert list(store.loads.recent(begun)) == ["a"]
        clock.advance(2 * 3600)
        store.loads.add({"b": [_sample(store, cpu=0.0)]})
        thin = store.loads.of_host("a", begun, begun + 600)
        assert thin[0].load == Load(cpu=0.5, **rates)
        assert sum(one.from_cloud for one in thin) == 5

    def test_two_controllers_of_one_host_do_not_double_it(self, store: Store, clock: FakeClock) -> None:
        for _ in range(4):
            store.loads.add({"a": [_sample(store, cpu=0.1)]})
            clock.advance(1)
            store.loads.add({"a": [_sample(store, cpu=0.9)]})
            clock.advance(4)
        assert [one.load.cpu for one in store.loads.of_host("a", 0, store.now())] == [0.1] * 4

    def test_old_samples_are_thinned_and_then_dropped(self, store: Store, clock: FakeClock) -> None:
        clock.advance(600 - store.now() % 600)
        begun = store.now()
        for step in range(120):
            store.loads.add({"a": [_sample(store, cpu=step % 12 / 12)]})
            clock.advance(5)
        assert len(store.loads.of_host("a", begun, begun + 600)) == 120
        clock.advance(3 * 3600)
        store.loads.add({"a": [_sample(store, cpu=0.0)]})
        kept = store.loads.of_host("a", begun, begun + 600)
        assert len(kept) == 10, "one a minute"
        assert {round(one.load.cpu or 0, 2) for one in kept} == {round(sum(range(12)) / 144, 2)}, "their mean"
        clock.advance(KEPT_S)
        store.loads.add({"b": [_sample(store, cpu=0.0)]})
        assert store.loads.of_host("a", begun, begun + 600) == []

    def test_the_hosts_of_a_run(self, store: Store) -> None:
        run = cases.drive(store, 2)
        assert store.attempts.hosts(run.id) == []
        claimed = cases.claimed(store, run, 1)
        assert store.attempts.hosts(run.id) == [claimed.attempt.host]
        assert store.hosts.last_uses() == {claimed.attempt.host: claimed.attempt.claimed_at}


def _sample(store: Store, **load: float) -> Sample:
    return Sample(at=store.now(), load=Load(**load))
