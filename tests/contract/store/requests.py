"""The contract of a store: what operators do, and what they request from an owner."""

from __future__ import annotations

import pytest
from tests.support.store import cases

from evalfleet.errors import NotFound, WrongState
from evalfleet.model import Outcome, Policy, TaskState, Verb
from evalfleet.store.store import Store
from evalfleet.testing.clock import FakeClock

T = TaskState


class SteeringContract:
    """Hold, release, retry, cancel; requests."""

    # Hold and release

    def test_hold_and_release_of_a_waiting_task(self, store: Store) -> None:
        run = cases.drive(store, 2)
        assert store.tasks.hold(run, ["task_2"], "look at it") == ["task_2"]
        task = store.tasks.get(run.id, "task_2")
        assert (task.state, task.reason) == (T.HELD, "look at it")
        assert [task.key for task in store.tasks.candidates(run.id, 9)] == ["task_1"]
        assert store.attempts.claim(run, cases.new_claim(2)) is None
        assert store.tasks.hold(run, ["task_2"], "again") == []
        assert store.tasks.release(run, ["task_2"]) == ["task_2"]
        assert store.tasks.release(run, ["task_2"]) == []
        task = store.tasks.get(run.id, "task_2")
        assert (task.state, task.reason) == (T.QUEUED, None)
        assert [event.type for event in store.events.of_run(run.id)[-2:]] == ["task.held", "task.released"]

    def test_unknown_keys_are_refused_whole(self, store: Store) -> None:
        run = cases.drive(store)
        before = store.events.of_run(run.id)
        with pytest.raises(NotFound, match="unknown"):
            store.tasks.hold(run, ["task_1", "unknown"], "no")
        with pytest.raises(NotFound, match="unknown"):
            store.tasks.release(run, ["unknown"])
        with pytest.raises(NotFound, match="unknown"):
            store.tasks.retry(run, ["unknown"], [T.FAILED])
        assert store.events.of_run(run.id) == before

    @pytest.mark.parametrize("state", [T.QUEUED, T.FAILED])
    def test_a_running_task_is_held_after_its_attempt(self, store: Store, state: TaskState) -> None:
        run = cases.drive(store)
        attempt = cases.claimed(store, run).attempt
        assert store.tasks.hold(run, ["task_1"], "mine") == ["task_1"]
        assert store.tasks.hold(run, ["task_1"], "mine") == []
        task = store.tasks.get(run.id, "task_1")
        assert (task.state, task.hold_asked) == (T.RUNNING, True)
        # The caller decided by what it had read before the hold.
        finished = cases.finished(store, run, cases.with_failure(attempt, state))
        assert (finished.task.state, finished.task.hold_asked, finished.task.reason) == (T.HELD, False, "mine")
        assert finished.task.failure is not None
        types = [event.type for event in store.events.of_run(run.id)[-3:]]
        assert types == ["task.hold_asked", "attempt.finished", "task.held"]
        assert store.events.of_run(run.id)[-1].data["reason"] == "mine"
        assert store.runs.complete(run) is not None

    def test_a_verdict_outdoes_a_hold(self, store: Store) -> None:
        run = cases.drive(store)
        attempt = cases.claimed(store, run).attempt
        store.tasks.hold(run, ["task_1"], "mine")
        task = cases.finished(store, run, cases.with_verdict(attempt)).task
        assert (task.state, task.hold_asked, task.reason) == (T.DONE, False, None)

    def test_a_cancel_outdoes_a_hold(self, store: Store) -> None:
        run = cases.drive(store)
        attempt = cases.claimed(store, run).attempt
        store.tasks.hold(run, ["task_1"], "mine")
        task = cases.finished(store, run, cases.with_failure(attempt, T.CANCELLED, Outcome.CANCELLED)).task
        assert (task.state, task.hold_asked) == (T.CANCELLED, False)

    def test_a_hold_that_was_asked_can_be_dropped(self, store: Store) -> None:
        run = cases.drive(store)
        attempt = cases.claimed(store, run).attempt
        store.tasks.hold(run, ["task_1"], "mine")
        assert store.tasks.release(run, ["task_1"]) == ["task_1"]
        assert store.events.of_run(run.id)[-1].type == "task.hold_dropped"
        assert cases.finished(store, run, cases.with_failure(attempt, T.QUEUED)).task.state is T.QUEUED

    def test_release_renews_only_what_is_used_up(self, store: Store) -> None:
        run = cases.drive(store, policy=Policy(attempts=2))
        for outcome, state in ((Outcome.LOST, T.QUEUED), (Outcome.TASK_ERROR, T.HELD)):
            cases.finished(store, run, cases.with_failure(cases.claimed(store, run).attempt, state, outcome))
        assert store.tasks.release(run, ["task_1"]) == ["task_1"]
        task = store.tasks.get(run.id, "task_1")
        assert (task.consumed, task.lost, task.not_before) == (1, 0, 0)
        cases.finished(store, run, cases.with_failure(cases.claimed(store, run).attempt, T.HELD))
        assert store.tasks.get(run.id, "task_1").consumed == 2
        assert store.tasks.release(run, ["task_1"]) == ["task_1"]
        assert store.tasks.get(run.id, "task_1").consumed == 0
        cases.finished(store, run, cases.with_failure(cases.claimed(store, run).attempt, T.QUEUED))
        assert store.tasks.get(run.id, "task_1").consumed == 1

    # Retry and cancel

    def test_retry_gives_a_fresh_allowance(self, store: Store) -> None:
        run = cases.drive(store, 4)
        for number, state in ((1, T.FAILED), (2, T.HELD)):
            attempt = cases.claimed(store, run, number).attempt
            cases.finished(store, run, cases.with_failure(attempt, state))
        cases.finished(store, run, cases.with_verdict(cases.claimed(store, run, 3).attempt))
        before = len(store.events.of_run(run.id))
        assert store.tasks.retry(run, None, [T.FAILED, T.HELD, T.DONE, T.QUEUED]) == ["task_1", "task_2"]
        assert [event.type for event in store.events.of_run(run.id)[before:]] == ["task.retried", "task.retried"]
        task = store.tasks.get(run.id, "task_1")
        assert (task.state, task.consumed, task.lost, task.attempts, task.reason) == (T.QUEUED, 0, 0, 1, None)
        assert cases.claimed(store, run, 1).attempt.number == 2

    def test_retry_of_keys_refuses_other_states(self, store: Store) -> None:
        run = cases.drive(store, 2)
        cases.finished(store, run, cases.with_verdict(cases.claimed(store, run).attempt))
        before = store.events.of_run(run.id)
        with pytest.raises(WrongState, match="'task_1' is done"):
            store.tasks.retry(run, ["task_1"], [T.FAILED, T.HELD])
        assert store.tasks.retry(run, ["task_1"], [T.DONE]) == []
        assert store.events.of_run(run.id) == before
        assert store.tasks.get(run.id, "task_1").state is T.DONE

    def test_cancelled_tasks_can_be_retried(self, store: Store) -> None:
        run = cases.drive(store, 3)
        cases.claimed(store, run, 1)
        store.tasks.hold(run, ["task_2"], "mine")
        assert store.tasks.cancel(run, "asked") == ["task_2", "task_3"]
        assert store.tasks.cancel(run, "asked") == []
        assert store.tasks.counts(run.id)[T.CANCELLED] == 2
        assert store.tasks.counts(run.id)[T.RUNNING] == 1
        assert [event.task for event in store.events.of_run(run.id)[-2:]] == ["task_2", "task_3"]
        assert store.tasks.retry(run, ["task_2"], [T.CANCELLED]) == ["task_2"]

    # Requests

    def test_a_request_is_obeyed_once(self, store: Store, clock: FakeClock) -> None:
        run, other = cases.drive(store), cases.drive(store)
        first = store.requests.add(run.id, Verb.HOLD, {"keys": ["task_1"]}, "pid 5")
        second = store.requests.add(run.id, Verb.CANCEL, {}, "pid 6")
        asked, later = store.requests.pending(run.id)
        assert (asked.number, asked.verb, asked.args, asked.asked_by) == (
            first,
            Verb.HOLD,
            {"keys": ["task_1"]},
            "pid 5",
        )
        assert (later.number, asked.asked_at) == (second, clock())
        assert store.events.of_run(run.id)[-1].type == "run.requested"
        assert store.requests.answer(first) is None
        assert not store.requests.obey(other, asked, {"wrong": True})
        assert store.requests.obey(run, asked, {"held": ["task_1"]})
        assert not store.requests.obey(run, asked, {"again": True})
        assert store.requests.answer(first) == {"held": ["task_1"]}
        assert store.requests.pending(run.id) == [later]
        assert store.requests.pending(other.id) == []

    def test_a_pause_that_was_asked_for_is_remembered_until_it_is_done_or_taken_back(self, store: Store) -> None:
        run = cases.drive(store)
        why = {"cause": "operator", "message": "lunch"}
        assert store.runs.set_pausing(run, why)
        assert store.runs.get(run.id).pausing == why
        assert store.runs.set_pausing(run, None)
        assert store.runs.get(run.id).pausing is None
        store.runs.set_pausing(run, why)
        taken = store.runs.take(run.id, "another")
        assert taken.pausing == why
        assert not store.runs.set_pausing(run, None)  # not ours any more
        assert store.runs.pause(taken, why) is not None
        assert store.runs.get(run.id).pausing is None
        assert not store.runs.set_pausing(taken, why)  # it does not run

    def test_requests_need_a_run(self, store: Store) -> None:
        with pytest.raises(NotFound):
            store.requests.add("nothing", Verb.CANCEL, {}, "me")
        with pytest.raises(NotFound):
            store.requests.answer(12345)

    def test_note_writes_an_event(self, store: Store, clock: FakeClock) -> None:
        run = cases.drive(store)
        clock.advance(1)
        store.events.note(run.id, "worker.suspected", {"host": "h"}, "task_1", "x.1.1")
        event = store.events.of_run(run.id)[-1]
        assert (event.type, event.data, event.at) == ("worker.suspected", {"host": "h"}, clock())
        assert (event.task, event.attempt) == ("task_1", "x.1.1")

    def test_what_is_said_of_workers_is_found_apart(self, store: Store) -> None:
        run = cases.drive(store)
        store.events.note(run.id, "worker.suspected", {"host": "h"})
        store.events.note(run.id, "worker.returned", {"host": "h"})
        kinds = [event.type for event in store.events.workers(run.id)]
        assert kinds == ["run.taken", "worker.suspected", "worker.returned"]
        assert store.events.workers("nobody") == []
