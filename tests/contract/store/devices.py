"""The contract of a store: GPUs are held by one live attempt at a time."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from tests.support.store import cases

from evalfleet.core.gpus.cards import Card
from evalfleet.model import Attempt, Device, Requests, Run
from evalfleet.store.attempts.records import Claim
from evalfleet.store.store import Store
from evalfleet.testing.clock import FakeClock


def _claim(task_number: int, *indices: int, host: str = "h1", others: frozenset[str] = frozenset()) -> Claim:
    devices = tuple(Device(index=index, uuid=f"GPU-{index}") for index in indices)
    claim = cases.new_claim(task_number)
    return replace(claim, host=host, others=others, devices=devices, requests=Requests(gpus=len(indices)))


def _claimed(store: Store, run: Run, claim: Claim) -> Attempt:
    found = store.attempts.claim(run, claim)
    assert found is not None
    return found.attempt


def _card(index: int) -> Card:
    return Card(host="h1", index=index, uuid=f"GPU-{index}", memory_mb=80_000, used_mb=600)


def held(store: Store, others: frozenset[str] = frozenset()) -> set[str]:
    return {lease.uuid for lease in store.gpus.leases(others) if lease.host == "h1"}


class DeviceContract:
    """Leases of GPUs."""

    def test_a_gpu_is_held_by_one_live_attempt_across_runs(self, store: Store) -> None:
        one, two = cases.drive(store, 3), cases.drive(store, 3)
        first = _claimed(store, one, _claim(1, 0, 1))
        assert first.devices == (Device(index=0, uuid="GPU-0"), Device(index=1, uuid="GPU-1"))
        assert store.attempts.all(one.id)[0].devices == first.devices
        assert held(store) == {"GPU-0", "GPU-1"}
        assert store.attempts.claim(one, _claim(2, 1)) is None
        assert store.attempts.claim(two, _claim(1, 2, 1)) is None  # all of them or none
        assert held(store) == {"GPU-0", "GPU-1"}
        _claimed(store, two, _claim(1, 2))
        _claimed(store, two, _claim(2, 0, host="h2"))  # another machine's
        _claimed(store, two, _claim(3))  # asks for none
        cases.finished(store, one, cases.with_verdict(first))
        assert held(store) == {"GPU-2"}
        _claimed(store, one, _claim(2, 1))

    def test_an_attempt_remembers_how_much_of_each_gpu_it_has(self, store: Store) -> None:
        run = cases.drive(store)
        devices = (Device(index=0, uuid="GPU-0", memory_mb=8000), Device(index=3, uuid="GPU-3", memory_mb=8000))
        asked = Requests(gpus=2, gpu_memory_mb=8000)
        store.gpus.see("h1", [_card(0), _card(3)], store.now())
        attempt = _claimed(store, run, replace(_claim(1), devices=devices, requests=asked))
        assert (attempt.devices, attempt.requests) == (devices, asked)
        assert store.attempts.all(run.id) == [attempt]

    @pytest.mark.parametrize("runs_on", [False, True])
    def test_an_abandoned_attempt_holds_its_gpu_while_its_host_runs_it(
        self, store: Store, clock: FakeClock, runs_on: bool
    ) -> None:
        old, new = cases.drive(store), cases.drive(store)
        left = _claimed(store, old, _claim(1, 0))
        clock.advance(61)
        others = frozenset({left.id} if runs_on else ())
        assert held(store, others) == ({"GPU-0"} if runs_on else set())
        assert (store.attempts.claim(new, _claim(1, 0, others=others)) is None) is runs_on
