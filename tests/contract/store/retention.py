"""The contract of a store: pinned runs, and what was removed of finished ones."""

from __future__ import annotations

import pytest
from tests.support.store import cases

from evalfleet.core.retention import Part
from evalfleet.errors import NotFound
from evalfleet.model import Run
from evalfleet.store.store import Store
from evalfleet.testing.clock import FakeClock


def over(store: Store, *, collected: bool = True) -> Run:
    run = cases.drive(store)
    attempt = cases.claimed(store, run).attempt
    cases.finished(store, run, cases.with_verdict(attempt))
    if collected:
        store.attempts.collect(run, attempt, [])
    store.runs.complete(run)
    store.runs.leave(run)
    return store.runs.get(run.id)


class RetentionContract:
    """What goes is written down before it goes; pinned, live and uncollected runs stay."""

    def test_a_pin_holds_until_it_is_taken_away(self, store: Store, clock: FakeClock) -> None:
        run = over(store)
        assert store.retention.pin_of(run.id) is None
        store.retention.pin(run.id, "anna", "paper")
        clock.advance(5)
        store.retention.pin(run.id, "bob")
        pin = store.retention.pin_of(run.id)
        assert pin is not None
        assert (pin.pinned_by, pin.reason, pin.pinned_at) == ("bob", None, store.now())
        assert not store.retention.begin_removal(run.id, Part.ARTIFACTS, "old")
        assert store.retention.unpin(run.id, "anna")
        assert not store.retention.unpin(run.id, "anna")
        assert store.retention.begin_removal(run.id, Part.ARTIFACTS, "old")

    def test_only_what_is_over_and_collected_is_finished(self, store: Store) -> None:
        done, live, uncollected = over(store), cases.drive(store), over(store, collected=False)
        store.retention.pin(done.id, "anna")
        assert [(run.id, run.pinned) for run in store.retention.finished()] == [(done.id, True)]
        for run in (live, uncollected):
            assert not store.retention.begin_removal(run.id, Part.ARTIFACTS, "old")
            assert store.retention.removals(run.id) == []

    def test_what_is_removed_is_summed_and_dated(self, store: Store, clock: FakeClock) -> None:
        run = over(store)
        for _ in range(2):
            clock.advance(10)
            assert store.retention.begin_removal(run.id, Part.LOGS, "old")
            store.retention.add_removed(run.id, Part.LOGS, files=2, freed=3_000_000_000)
        [removal] = store.retention.removals(run.id)
        assert (removal.part, removal.files, removal.freed) == (Part.LOGS, 4, 6_000_000_000)
        assert (removal.removed_at, removal.name, removal.reason) == (store.now(), run.name, "old")

    def test_a_run_goes_as_a_whole_and_says_so_when_it_is_asked_for(self, store: Store) -> None:
        run, other = over(store), over(store)
        assert store.retention.removed_run(run.id) is None
        assert store.retention.begin_removal(run.id, Part.RUN, "old")
        assert store.retention.removed_run(run.id) is None  # it is still there
        store.retention.forget_run(run.id, run.name)
        with pytest.raises(NotFound, match=rf"run '{run.id}' was removed by retention on \d{{4}}-\d\d-\d\d"):
            store.runs.find(run.id)
        assert [event.type for event in store.events.of_run(run.id)] == ["run.removed"]
        assert store.runs.newest() == [other]
        assert store.tasks.counts(other.id)
