"""The contract of a store: runs, their owners, and transactions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product

import pytest
from tests.support.store import cases

from evalfleet.core import transitions
from evalfleet.errors import EvalfleetError, InputError, NotFound, Owned
from evalfleet.model import JsonObject, Policy, Requests, Run, RunState, TaskSpec, TaskState, Verb
from evalfleet.store.attempts.records import Progress
from evalfleet.store.store import Store
from evalfleet.testing.clock import FakeClock

HOSTILE = ["../../x", "a b", "new\nline", "\U0001f642", "x" * 300, "'; drop table run; --", "%_\\", "tab\t", "\x7f"]
REASON: JsonObject = {"cause": "operator", "message": "wait"}
R = RunState


def fingerprint(store: Store, run_id: str) -> tuple[object, ...]:
    """All of a run that a statement could change."""
    return (
        store.runs.get(run_id),
        tuple(store.tasks.all(run_id)),
        tuple(store.attempts.all(run_id)),
        tuple(store.requests.pending(run_id)),
        store.runs.breaker(run_id),
        len(store.events.of_run(run_id, limit=100_000)),
    )


def event_types(store: Store, run: Run) -> list[str]:
    return [event.type for event in store.events.of_run(run.id, limit=100_000)]


class RunContract:
    """Submission, ownership, the states of a run, batches."""

    @pytest.fixture
    def another(self) -> Iterator[Store]:
        pytest.skip("this store has no second instance")

    # Submission

    def test_submit_stores_the_run_and_its_tasks_in_order(self, store: Store, clock: FakeClock) -> None:
        policy = Policy(attempts=5, budget_usd=1.5, files=("a", "b"), workers=3)
        spec = cases.task_spec("k", payload={"any": ["json", None, 1.5]}, env={"A": "1"}, secrets=("S",), timeout_s=5.0)
        spec_2 = cases.task_spec(
            "z", domain="other", requests=Requests(gpus=2, memory_mb=100, gpu_memory_mb=9), gpu_env="uuid"
        )
        run = store.runs.submit("name", policy, iter([spec, spec_2]), folder="/f", base_env={"P": "/b"}, open=True)
        assert run == store.runs.get(run.id)
        assert (run.state, run.epoch, run.driver, run.open) == (R.QUEUED, 0, None, True)
        assert (run.name, run.policy, run.folder, run.base_env) == ("name", policy, "/f", {"P": "/b"})
        assert (run.created_at, run.started_at, run.ended_at) == (clock(), None, None)
        tasks = list(store.tasks.all(run.id))
        assert [task.spec for task in tasks] == [spec, spec_2]
        assert [task.number for task in tasks] == [1, 2]
        assert {task.state for task in tasks} == {TaskState.QUEUED}
        [event] = store.events.of_run(run.id)
        assert (event.type, event.at, event.data) == ("run.submitted", clock(), {"name": "name", "tasks": 2})

    def test_submit_takes_hostile_keys(self, store: Store) -> None:
        run = cases.submit(store, HOSTILE)
        assert [task.key for task in store.tasks.all(run.id)] == HOSTILE
        assert [store.tasks.get(run.id, key).number for key in HOSTILE] == list(range(1, len(HOSTILE) + 1))

    def test_a_key_that_stands_twice_is_refused_whole(self, store: Store) -> None:
        with pytest.raises(InputError, match=r"'b'.*twice"):
            cases.submit(store, ["a", "b", "c", "b"])
        assert store.runs.newest() == []
        assert cases.submit(store, ["a", "b"]).id

    def test_a_source_that_breaks_leaves_nothing(self, store: Store) -> None:
        def broken() -> Iterator[TaskSpec]:
            yield cases.task_spec("a")
            raise OSError("the pipe broke")

        with pytest.raises(OSError, match="the pipe broke"):
            store.runs.submit("n", Policy(), broken(), folder="/", base_env={})
        assert store.runs.newest() == []

    def test_a_slow_source_keeps_no_writer_waiting(self, store: Store, another: Store) -> None:
        first = cases.submit(store)

        def slow() -> Iterator[TaskSpec]:
            another.events.note(first.id, "test.noted", {})
            yield cases.task_spec("a")

        store.runs.submit("n", Policy(), slow(), folder="/", base_env={})
        assert "test.noted" in event_types(store, first)

    def test_what_took_longest_is_expected_to_again(self, store: Store) -> None:
        first = cases.drive(store, ["short", "long"])
        for number, duration in ((1, 5.0), (2, 50.0)):
            attempt = cases.claimed(store, first, number).attempt
            cases.finished(store, first, cases.with_verdict(attempt, duration_s=duration))
        second = cases.submit(store, ["new", "short", "long"])
        assert [task.key for task in store.tasks.candidates(second.id, 10)] == ["new", "long", "short"]
        assert [task.expected_s for task in store.tasks.all(second.id)] == [None, 5.0, 50.0]

    def test_a_budget_that_may_end_a_run_early_makes_each_beginning_a_fair_sample(self, store: Store) -> None:
        keys = [(f"{domain}_{n}", domain) for domain, count in (("a", 20), ("b", 10), ("c", 30)) for n in range(count)]
        specs = [cases.task_spec(key, domain) for key, domain in keys]

        def submitted(budget_usd: float | None) -> Run:
            return store.runs.submit("n", Policy(budget_usd=budget_usd), specs, folder="/", base_env={})

        def order(run: Run) -> list[str]:
            return [task.key for task in store.tasks.candidates(run.id, 100)]

        def is_fair(found: list[str]) -> bool:
            shares = {"a": 20 / 60, "b": 10 / 60, "c": 30 / 60}
            beginnings = [[key[0] for key in found[:size]] for size in range(1, 61)]
            return all(
                abs(one.count(domain) - share * len(one)) <= 1.01
                for one in beginnings
                for domain, share in shares.items()
            )

        first = submitted(1.0)  # nothing is known of what it costs
        assert is_fair(order(first))
        assert order(first) == order(submitted(1.0))  # two runs begin with the same tasks
        assert order(first) != sorted(order(first), key=[key for key, _ in keys].index)
        plain = submitted(None)
        assert order(plain) == [key for key, _ in keys]
        run = store.runs.begin(store.runs.take(plain.id, "me"))
        assert run is not None
        for number in range(1, 61):  # the last ones take longest; each costs $0.10
            attempt = cases.claimed(store, run, number).attempt
            cases.finished(store, run, cases.with_verdict(attempt, duration_s=float(number), cost_usd=0.1))
        longest_first = [key for key, _ in reversed(keys)]
        assert order(submitted(None)) == longest_first
        assert order(submitted(10.0)) == longest_first  # more than enough
        assert is_fair(order(submitted(6.5)))  # enough if nothing fails
        assert is_fair(order(submitted(0.6)))

    def test_another_budget_makes_up_for_what_was_not_tried(self, store: Store) -> None:
        specs = [cases.task_spec(f"{domain}_{n}", domain) for domain in "ab" for n in range(10)]
        run = store.runs.begin(
            store.runs.take(store.runs.submit("n", Policy(), specs, folder="/", base_env={}).id, "me")
        )
        assert run is not None
        for number in range(1, 6):
            attempt = cases.claimed(store, run, number).attempt
            cases.finished(store, run, cases.with_verdict(attempt))
        amended = store.runs.amend(run, Policy(budget_usd=1.0))
        assert amended is not None
        assert [task.key[0] for task in store.tasks.candidates(run.id, 5)] == ["b"] * 5
        store.runs.amend(amended, Policy())
        assert [task.number for task in store.tasks.candidates(run.id, 3)] == [6, 7, 8]

    # Owners

    def test_take_makes_an_owner_and_raises_the_epoch(self, store: Store) -> None:
        run = cases.submit(store)
        assert store.runs.driver(run.id) is None
        taken = store.runs.take(run.id, "me, pid 1")
        assert (taken.driver, taken.epoch, taken.state) == ("me, pid 1", 1, R.QUEUED)
        assert store.runs.driver(run.id) == "me, pid 1"
        assert store.runs.take(run.id, "me again").epoch == 2
        assert event_types(store, run)[1:] == ["run.taken", "run.taken"]
        with pytest.raises(NotFound):
            store.runs.take("nothing", "me")

    def test_a_run_has_one_owner_at_a_time(self, store: Store, another: Store) -> None:
        run = cases.submit(store)
        taken = store.runs.take(run.id, "the first, pid 7")
        with pytest.raises(Owned, match="the first, pid 7"):
            another.runs.take(run.id, "the second")
        assert another.runs.driver(run.id) == "the first, pid 7"
        assert store.runs.get(run.id).epoch == 1
        store.runs.leave(taken)
        assert another.runs.take(run.id, "the second").epoch == 2
        assert store.runs.driver(run.id) == "the second"

    def test_what_an_owner_left_by_closing_can_be_taken(self, store: Store, another: Store) -> None:
        run = cases.submit(store)
        another.runs.take(run.id, "the first")
        another.close()
        assert store.runs.driver(run.id) is None
        assert store.runs.take(run.id, "the second").epoch == 2

    def test_leave_gives_up_only_what_is_ours(self, store: Store) -> None:
        run = cases.submit(store)
        old, new = store.runs.take(run.id, "a"), store.runs.take(run.id, "b")
        store.runs.leave(old)
        assert store.runs.get(run.id).driver == "b"
        assert store.runs.driver(run.id) is not None
        store.runs.leave(new)
        assert store.runs.get(run.id).driver is None
        assert store.runs.driver(run.id) is None
        assert event_types(store, run)[-1] == "run.left"

    @pytest.mark.parametrize("name", ["begin", "pause", "complete", "cancel", "amend", "breaker", "leave", "claim"])
    def test_an_old_epoch_changes_nothing_of_the_run(self, store: Store, name: str) -> None:
        old = cases.drive(store)
        paused = store.runs.pause(old, REASON) if name == "begin" else None
        if name in ("complete", "cancel"):
            cases.finished(store, old, cases.with_verdict(cases.claimed(store, old).attempt))
        assert (paused is not None) == (name == "begin")
        store.runs.take(old.id, "another")
        calls: dict[str, Callable[[], object]] = {
            "begin": lambda: store.runs.begin(old),
            "pause": lambda: store.runs.pause(old, REASON),
            "complete": lambda: store.runs.complete(old),
            "cancel": lambda: store.runs.cancel(old),
            "amend": lambda: store.runs.amend(old, Policy(workers=9)),
            "breaker": lambda: store.runs.store_breaker(old, {"state": "open"}, "breaker.opened"),
            "leave": lambda: store.runs.leave(old),
            "claim": lambda: store.attempts.claim(old, cases.new_claim(1)),
        }
        before = fingerprint(store, old.id)
        assert calls[name]() is None
        assert fingerprint(store, old.id) == before

    @pytest.mark.parametrize(
        "name",
        [
            "progress",
            "finish",
            "collect",
            "renew",
            "rejudge",
            "conclude",
            "hold",
            "ask",
            "unask",
            "release",
            "retry",
            "cancel_tasks",
            "obey",
        ],
    )
    def test_an_old_epoch_changes_nothing_of_its_tasks(self, store: Store, name: str) -> None:
        old = cases.drive(store, 4)
        live = cases.claimed(store, old, 1).attempt
        gone = cases.claimed(store, old, 2).attempt
        gone = cases.finished(store, old, cases.with_failure(gone, TaskState.HELD)).attempt
        if name == "rejudge":
            assert store.attempts.collect(old, gone, []) is not None
        if name == "unask":
            store.tasks.hold(old, ["task_1"], "later")
        store.requests.add(old.id, Verb.CANCEL, {}, "me")
        [request] = store.requests.pending(old.id)
        store.runs.take(old.id, "another")
        calls: dict[str, Callable[[], object]] = {
            "progress": lambda: store.attempts.progress(old, Progress(attempt=live, last_event=1, state="running")),
            "finish": lambda: store.attempts.finish(old, cases.with_verdict(live)),
            "collect": lambda: store.attempts.collect(old, gone, []),
            "renew": lambda: store.attempts.renew(old, 100.0),
            "rejudge": lambda: store.attempts.rejudge(
                old, gone, cases.new_failure(), cases.Outcome.LOST, 2, TaskState.FAILED
            ),
            "conclude": lambda: store.tasks.conclude(old, 3, TaskState.FAILED, "no"),
            "hold": lambda: store.tasks.hold(old, ["task_3"], "no"),
            "ask": lambda: store.tasks.hold(old, ["task_1"], "no"),
            "unask": lambda: store.tasks.release(old, ["task_1"]),
            "release": lambda: store.tasks.release(old, ["task_2"]),
            "retry": lambda: store.tasks.retry(old, ["task_2"], [TaskState.HELD]),
            "cancel_tasks": lambda: store.tasks.cancel(old, "no"),
            "obey": lambda: store.requests.obey(old, request, {}),
        }
        before = fingerprint(store, old.id)
        assert not calls[name]()
        assert fingerprint(store, old.id) == before

    # States

    @pytest.mark.parametrize(("state", "verb"), list(product(R, ("begin", "pause", "complete", "cancel"))))
    def test_a_run_moves_along_the_edges_only(self, store: Store, clock: FakeClock, state: RunState, verb: str) -> None:
        run = self._run_in(store, state)
        clock.advance(5)
        calls: dict[str, tuple[Callable[[], Run | None], RunState, str]] = {
            "begin": (
                lambda: store.runs.begin(run),
                R.RUNNING,
                "run.started" if run.started_at is None else "run.resumed",
            ),
            "pause": (lambda: store.runs.pause(run, REASON), R.PAUSED, "run.paused"),
            "complete": (lambda: store.runs.complete(run), R.COMPLETED, "run.completed"),
            "cancel": (lambda: store.runs.cancel(run), R.CANCELLED, "run.cancelled"),
        }
        call, after, event = calls[verb]
        before = fingerprint(store, run.id)
        changed = call()
        if not transitions.allowed(state, after):
            assert changed is None
            assert fingerprint(store, run.id) == before
            return
        assert changed == store.runs.get(run.id)
        assert changed is not None
        assert changed.state is after
        assert changed.reason == (REASON if after is R.PAUSED else None)
        assert changed.ended_at == (clock() if after in (R.COMPLETED, R.CANCELLED) else None)
        assert event_types(store, run)[-1] == event
        assert len(event_types(store, run)) == before[-1] + 1  # pyright: ignore[reportOperatorIssue]

    def _run_in(self, store: Store, state: RunState) -> Run:
        run = store.runs.take(cases.submit(store, 0).id, "me")
        if state is R.QUEUED:
            return run
        begun = store.runs.begin(run)
        reach: dict[RunState, Callable[[], Run | None]] = {
            R.RUNNING: lambda: begun,
            R.PAUSED: lambda: store.runs.pause(run, REASON),
            R.COMPLETED: lambda: store.runs.complete(run),
            R.CANCELLED: lambda: store.runs.cancel(run),
        }
        found = reach[state]()
        assert found is not None
        assert found.state is state
        return found

    def test_begin_says_resumed_the_second_time_even_to_an_old_record(self, store: Store) -> None:
        run = store.runs.take(cases.submit(store).id, "me")
        assert store.runs.begin(run) is not None
        assert store.runs.pause(run, REASON) is not None
        assert store.runs.begin(run) is not None
        assert event_types(store, run)[2:] == ["run.started", "run.paused", "run.resumed"]
        assert store.events.of_run(run.id)[-1].data == {"from": "paused"}

    def test_a_run_completes_when_nothing_waits_or_runs(self, store: Store) -> None:
        run = cases.drive(store, 2)
        assert store.runs.complete(run) is None
        assert store.tasks.hold(run, ["task_2"], "later") == ["task_2"]
        attempt = cases.claimed(store, run, 1).attempt
        assert store.runs.complete(run) is None
        cases.finished(store, run, cases.with_verdict(attempt))
        assert store.runs.complete(run) is not None

    def test_an_open_run_does_not_complete(self, store: Store) -> None:
        run = cases.drive(store, 0, open=True)
        assert store.runs.complete(run) is None

    def test_an_open_run_gets_more_tasks_until_it_is_closed(self, store: Store) -> None:
        run = cases.drive(store, 1, open=True)
        added = store.tasks.add(run, [cases.task_spec("more_1"), cases.task_spec("more_2")])
        assert [(task.number, task.key, task.state) for task in added] == [
            (2, "more_1", TaskState.QUEUED),
            (3, "more_2", TaskState.QUEUED),
        ]
        assert [task.key for task in store.tasks.candidates(run.id, 9)] == ["task_1", "more_1", "more_2"]
        assert [event.task for event in store.events.of_run(run.id) if event.type == "task.submitted"] == [
            "more_1",
            "more_2",
        ]
        with pytest.raises(InputError, match="more_1"):
            store.tasks.add(run, [cases.task_spec("new"), cases.task_spec("more_1")])
        assert store.tasks.counts(run.id)[TaskState.QUEUED] == 3
        closed = store.runs.set_open(run, False, "enough")
        assert closed is not None
        assert not closed.open
        assert store.runs.set_open(run, False, "enough") is None
        assert store.tasks.add(run, [cases.task_spec("late")]) == []
        assert event_types(store, run)[-1] == "run.closed"

    def test_an_old_owner_adds_nothing(self, store: Store) -> None:
        run = cases.drive(store, 0, open=True)
        store.runs.take(run.id, "another")
        assert store.tasks.add(run, [cases.task_spec("late")]) == []
        assert store.runs.set_open(run, False, "late") is None
        assert store.runs.get(run.id).open

    def test_a_run_is_cancelled_when_its_tasks_are(self, store: Store) -> None:
        run = cases.drive(store, 3)
        attempt = cases.claimed(store, run, 1).attempt
        store.tasks.hold(run, ["task_2"], "later")
        assert store.runs.cancel(run) is None
        assert store.tasks.cancel(run, "asked") == ["task_2", "task_3"]
        assert store.runs.cancel(run) is None
        cases.finished(store, run, cases.with_failure(attempt, TaskState.CANCELLED, cases.Outcome.CANCELLED))
        assert store.runs.cancel(run) is not None

    def test_amend_and_breaker_are_kept(self, store: Store) -> None:
        run = cases.drive(store)
        assert store.runs.breaker(run.id) is None
        amended = store.runs.amend(run, Policy(workers=7, budget_usd=2.0))
        assert amended is not None
        assert amended.policy == store.runs.get(run.id).policy == Policy(workers=7, budget_usd=2.0)
        store.runs.store_breaker(run, {"state": "half_open"})
        store.runs.store_breaker(run, {"state": "open"}, "breaker.opened")
        assert store.runs.breaker(run.id) == {"state": "open"}
        assert event_types(store, run)[-2:] == ["run.amended", "breaker.opened"]

    # Transactions

    def test_a_batch_is_one_transaction(self, store: Store) -> None:
        run = cases.drive(store, 2)
        before = fingerprint(store, run.id)

        def broken() -> None:
            with store.batch():
                cases.claimed(store, run, 1)
                with store.batch():
                    store.events.note(run.id, "test.noted", {})
                raise KeyError

        with pytest.raises(KeyError):
            broken()
        assert fingerprint(store, run.id) == before
        with store.batch():
            cases.claimed(store, run, 1)
            cases.claimed(store, run, 2)
        assert len(store.attempts.all(run.id)) == 2

    def test_a_method_that_fails_in_a_batch_leaves_nothing(self, store: Store) -> None:
        run = cases.drive(store, 2)
        with store.batch():
            cases.claimed(store, run, 1)
            with pytest.raises(InputError):
                cases.submit(store, ["same", "same"])
            with pytest.raises(EvalfleetError):
                store.tasks.hold(run, ["task_2", "unknown"], "no")
        assert [found.id for found in store.runs.newest()] == [run.id]
        assert store.tasks.get(run.id, "task_2").state is TaskState.QUEUED
        assert store.tasks.get(run.id, "task_1").state is TaskState.RUNNING

    def test_others_see_a_commit_and_only_that(self, store: Store, another: Store) -> None:
        run = cases.submit(store)
        another.changed()
        assert not another.changed()
        with store.batch():
            store.events.note(run.id, "test.noted", {})
            assert not another.changed()
            assert event_types(another, run) == ["run.submitted"]
        assert another.changed()
        assert not another.changed()
        assert event_types(another, run) == ["run.submitted", "test.noted"]

    def test_a_snapshot_stands_still(self, store: Store, another: Store) -> None:
        run = cases.submit(store)
        with another.snapshot():
            assert len(event_types(another, run)) == 1
            store.events.note(run.id, "test.noted", {})
            with another.snapshot():
                assert len(event_types(another, run)) == 1
        assert len(event_types(another, run)) == 2
