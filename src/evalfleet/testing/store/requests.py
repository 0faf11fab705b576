"""The contract of a store: what operators do, and what they ask of an owner."""

from __future__ import annotations

import pytest

from evalfleet.errors import NotFound, WrongState
from evalfleet.model import Outcome, Policy, TaskState, Verb
from evalfleet.store.base.store import Store
from evalfleet.testing.clock import FakeClock
from evalfleet.testing.store import cases

T = TaskState


class SteeringContract:
    """Hold, release, retry, cancel; requests."""

    # Hold and release

    def test_hold_and_release_of_a_waiting_task(self, store: Store) -> None:
        run = cases.drive(store, 2)
        assert store.hold(run, ["task_2"], "look at it") == ["task_2"]
        task = store.task(run.id, "task_2")
        assert (task.state, task.reason) == (T.HELD, "look at it")
        assert [task.key for task in store.candidates(run.id, 9)] == ["task_1"]
        assert store.claim(run, cases.new_claim(2)) is None
        assert store.hold(run, ["task_2"], "again") == []
        assert store.release(run, ["task_2"]) == ["task_2"]
        assert store.release(run, ["task_2"]) == []
        task = store.task(run.id, "task_2")
        assert (task.state, task.reason) == (T.QUEUED, None)
        assert [event.type for event in store.events(run.id)[-2:]] == ["task.held", "task.released"]

    def test_unknown_keys_are_refused_whole(self, store: Store) -> None:
        run = cases.drive(store)
        before = store.events(run.id)
        with pytest.raises(NotFound, match="unknown"):
            store.hold(run, ["task_1", "unknown"], "no")
        with pytest.raises(NotFound, match="unknown"):
            store.release(run, ["unknown"])
        with pytest.raises(NotFound, match="unknown"):
            store.retry(run, ["unknown"], [T.FAILED])
        assert store.events(run.id) == before

    @pytest.mark.parametrize("state", [T.QUEUED, T.FAILED])
    def test_a_running_task_is_held_after_its_attempt(self, store: Store, state: TaskState) -> None:
        run = cases.drive(store)
        attempt = cases.claimed(store, run).attempt
        assert store.hold(run, ["task_1"], "mine") == ["task_1"]
        assert store.hold(run, ["task_1"], "mine") == []
        task = store.task(run.id, "task_1")
        assert (task.state, task.hold_asked) == (T.RUNNING, True)
        # The caller decided by what it had read before the hold.
        finished = cases.finished(store, run, cases.with_failure(attempt, state))
        assert (finished.task.state, finished.task.hold_asked, finished.task.reason) == (T.HELD, False, "mine")
        assert finished.task.failure is not None
        types = [event.type for event in store.events(run.id)[-3:]]
        assert types == ["task.hold_asked", "attempt.finished", "task.held"]
        assert store.events(run.id)[-1].data["reason"] == "mine"
        assert store.complete(run) is not None

    def test_a_verdict_outdoes_a_hold(self, store: Store) -> None:
        run = cases.drive(store)
        attempt = cases.claimed(store, run).attempt
        store.hold(run, ["task_1"], "mine")
        task = cases.finished(store, run, cases.with_verdict(attempt)).task
        assert (task.state, task.hold_asked, task.reason) == (T.DONE, False, None)

    def test_a_cancel_outdoes_a_hold(self, store: Store) -> None:
        run = cases.drive(store)
        attempt = cases.claimed(store, run).attempt
        store.hold(run, ["task_1"], "mine")
        task = cases.finished(store, run, cases.with_failure(attempt, T.CANCELLED, Outcome.CANCELLED)).task
        assert (task.state, task.hold_asked) == (T.CANCELLED, False)

    def test_a_hold_that_was_asked_can_be_dropped(self, store: Store) -> None:
        run = cases.drive(store)
        attempt = cases.claimed(store, run).attempt
        store.hold(run, ["task_1"], "mine")
        assert store.release(run, ["task_1"]) == ["task_1"]
        assert store.events(run.id)[-1].type == "task.hold_dropped"
        assert cases.finished(store, run, cases.with_failure(attempt, T.QUEUED)).task.state is T.QUEUED

    def test_release_renews_only_what_is_used_up(self, store: Store) -> None:
        run = cases.drive(store, policy=Policy(attempts=2))
        for outcome, state in ((Outcome.LOST, T.QUEUED), (Outcome.TASK_ERROR, T.HELD)):
            cases.finished(store, run, cases.with_failure(cases.claimed(store, run).attempt, state, outcome))
        assert store.release(run, ["task_1"]) == ["task_1"]
        task = store.task(run.id, "task_1")
        assert (task.consumed, task.lost, task.not_before) == (1, 0, 0)
        cases.finished(store, run, cases.with_failure(cases.claimed(store, run).attempt, T.HELD))
        assert store.task(run.id, "task_1").consumed == 2
        assert store.release(run, ["task_1"]) == ["task_1"]
        assert store.task(run.id, "task_1").consumed == 0
        cases.finished(store, run, cases.with_failure(cases.claimed(store, run).attempt, T.QUEUED))
        assert store.task(run.id, "task_1").consumed == 1

    # Retry and cancel

    def test_retry_gives_a_fresh_allowance(self, store: Store) -> None:
        run = cases.drive(store, 4)
        for number, state in ((1, T.FAILED), (2, T.HELD)):
            attempt = cases.claimed(store, run, number).attempt
            cases.finished(store, run, cases.with_failure(attempt, state))
        cases.finished(store, run, cases.with_verdict(cases.claimed(store, run, 3).attempt))
        before = len(store.events(run.id))
        assert store.retry(run, None, [T.FAILED, T.HELD, T.DONE, T.QUEUED]) == ["task_1", "task_2"]
        assert [event.type for event in store.events(run.id)[before:]] == ["task.retried", "task.retried"]
        task = store.task(run.id, "task_1")
        assert (task.state, task.consumed, task.lost, task.attempts, task.reason) == (T.QUEUED, 0, 0, 1, None)
        assert cases.claimed(store, run, 1).attempt.number == 2

    def test_retry_of_keys_refuses_other_states(self, store: Store) -> None:
        run = cases.drive(store, 2)
        cases.finished(store, run, cases.with_verdict(cases.claimed(store, run).attempt))
        before = store.events(run.id)
        with pytest.raises(WrongState, match="'task_1' is done"):
            store.retry(run, ["task_1"], [T.FAILED, T.HELD])
        assert store.retry(run, ["task_1"], [T.DONE]) == []
        assert store.events(run.id) == before
        assert store.task(run.id, "task_1").state is T.DONE

    def test_cancelled_tasks_can_be_retried(self, store: Store) -> None:
        run = cases.drive(store, 3)
        cases.claimed(store, run, 1)
        store.hold(run, ["task_2"], "mine")
        assert store.cancel_tasks(run, "asked") == ["task_2", "task_3"]
        assert store.cancel_tasks(run, "asked") == []
        assert store.counts(run.id)[T.CANCELLED] == 2
        assert store.counts(run.id)[T.RUNNING] == 1
        assert [event.task for event in store.events(run.id)[-2:]] == ["task_2", "task_3"]
        assert store.retry(run, ["task_2"], [T.CANCELLED]) == ["task_2"]

    # Requests

    def test_a_request_is_obeyed_once(self, store: Store, clock: FakeClock) -> None:
        run, other = cases.drive(store), cases.drive(store)
        first = store.request(run.id, Verb.HOLD, {"keys": ["task_1"]}, "pid 5")
        second = store.request(run.id, Verb.CANCEL, {}, "pid 6")
        asked, later = store.requests(run.id)
        assert (asked.number, asked.verb, asked.args, asked.asked_by) == (
            first,
            Verb.HOLD,
            {"keys": ["task_1"]},
            "pid 5",
        )
        assert (later.number, asked.asked_at) == (second, clock())
        assert store.events(run.id)[-1].type == "run.requested"
        assert store.answer(first) is None
        assert not store.obey(other, asked, {"wrong": True})
        assert store.obey(run, asked, {"held": ["task_1"]})
        assert not store.obey(run, asked, {"again": True})
        assert store.answer(first) == {"held": ["task_1"]}
        assert store.requests(run.id) == [later]
        assert store.requests(other.id) == []

    def test_a_pause_that_was_asked_for_is_remembered_until_it_is_done_or_taken_back(self, store: Store) -> None:
        run = cases.drive(store)
        why = {"cause": "operator", "message": "lunch"}
        assert store.set_pausing(run, why)
        assert store.run(run.id).pausing == why
        assert store.set_pausing(run, None)
        assert store.run(run.id).pausing is None
        store.set_pausing(run, why)
        taken = store.take(run.id, "another")
        assert taken.pausing == why
        assert not store.set_pausing(run, None)  # not ours any more
        assert store.pause(taken, why) is not None
        assert store.run(run.id).pausing is None
        assert not store.set_pausing(taken, why)  # it does not run

    def test_requests_need_a_run(self, store: Store) -> None:
        with pytest.raises(NotFound):
            store.request("nothing", Verb.CANCEL, {}, "me")
        with pytest.raises(NotFound):
            store.answer(12345)

    def test_note_writes_an_event(self, store: Store, clock: FakeClock) -> None:
        run = cases.drive(store)
        clock.advance(1)
        store.note(run.id, "worker.suspected", {"host": "h"}, "task_1", "x.1.1")
        event = store.events(run.id)[-1]
        assert (event.type, event.data, event.at) == ("worker.suspected", {"host": "h"}, clock())
        assert (event.task, event.attempt) == ("task_1", "x.1.1")

    def test_what_is_said_of_workers_is_found_apart(self, store: Store) -> None:
        run = cases.drive(store)
        store.note(run.id, "worker.suspected", {"host": "h"})
        store.note(run.id, "worker.returned", {"host": "h"})
        kinds = [event.type for event in store.worker_events(run.id)]
        assert kinds == ["run.taken", "worker.suspected", "worker.returned"]
        assert store.worker_events("nobody") == []
