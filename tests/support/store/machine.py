"""Two controllers over one store, in any order that hypothesis can think of.

Subclass `StoreMachine`, say how a store is opened, and let pytest run its `TestCase`::

    class MyMachine(StoreMachine):
        def open(self) -> Store: ...  # every call another instance of the same, at first empty, store

    TestMyStore = MyMachine.TestCase

A controller that is killed lets its lock go but may wake up once more, with the epoch of long ago. After every step the
store is compared with a model in plain Python, and with what its events say.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from msgspec import Struct
from tests.support.store import cases
from tests.support.store.model import Model, ModelAttempt
from tests.support.store.replay import Replay

from evalfleet.core import transitions
from evalfleet.errors import Owned
from evalfleet.model import Attempt, AttemptState, Outcome, Policy, Run, TaskState
from evalfleet.store.attempts.records import Progress
from evalfleet.store.store import Store
from evalfleet.testing.clock import FakeClock

A, T = AttemptState, TaskState
TASKS = 5
ALLOWANCE = 2
MEMORY_MB = 1000


def _actions() -> st.SearchStrategy[tuple[Any, ...]]:
    """A method and its arguments. One rule for all, because hypothesis leaves whole rules out of its examples."""
    who = st.sampled_from(["owner", "owner", "owner", "other"])  # the newest owner, or the other one
    number, pick = st.integers(1, TASKS), st.integers(0, 12)
    state = st.sampled_from([T.QUEUED, T.QUEUED, T.FAILED, T.HELD, T.CANCELLED])
    outcome = st.sampled_from([Outcome.TASK_ERROR, Outcome.LOST, Outcome.LOST, Outcome.CANCELLED])
    live = st.sampled_from([None, A.STARTING, A.RUNNING])
    memory_mb = st.sampled_from([0, 400, 700])
    weighted: list[tuple[int, str, tuple[st.SearchStrategy[Any], ...]]] = [
        (5, "claim", (number, st.just(TASKS), memory_mb)),
        (3, "progress", (pick, live, st.integers(0, 5))),
        (2, "succeed", (pick,)),
        (4, "fail", (pick, outcome, state, st.sampled_from([0.0, 0.0, 10.0]), st.booleans())),
        (2, "wind_up", (pick, st.booleans(), st.sampled_from([None, T.FAILED, T.HELD]))),
        (3, "steer", (number, st.sampled_from(["hold", "release", "release", "retry", "retry"]))),
        (1, "cancel_tasks", ()),
        (1, "wait", (st.sampled_from([5.0, 10.0]),)),
        (1, "own", (st.sampled_from(["take", "leave", "die", "take_over", "take_over"]),)),
        (2, "move_run", (st.sampled_from(["begin", "begin", "begin", "pause", "complete", "cancel"]),)),
    ]
    return st.one_of([st.tuples(st.just(name), who, *rest) for weight, name, rest in weighted for _ in range(weight)])


class Controller(Struct):
    name: str
    store: Store
    run: Run | None = None  # as it was when we took it; possibly long ago
    owns: bool = False


class StoreMachine(RuleBasedStateMachine):
    """The rules are what controllers and operators do; the invariants are what no order of them may break."""

    @abstractmethod
    def open(self) -> Store:
        """Another instance of the store of this example, measured by `self.clock`."""

    @initialize()
    def submit(self) -> None:
        self.clock = FakeClock()
        self.controllers = [Controller(name, self.open()) for name in ("first", "second")]
        self.reader = self.open()
        self.run_id = cases.submit(self.reader, TASKS, Policy(attempts=ALLOWANCE)).id
        self.model = Model(TASKS, ALLOWANCE, MEMORY_MB)
        self.replay = Replay([f"task_{number}" for number in range(1, TASKS + 1)])
        self.seen: dict[str, Attempt] = {}
        # Most examples should be about a run that runs, with an owner of old who does not know that it is over.
        self._take(self.controllers[1])
        self._die(self.controllers[1])
        self._take(self.controllers[0])
        self.move_run("owner", "begin")

    def teardown(self) -> None:
        for controller in getattr(self, "controllers", []):
            controller.store.close()
        if hasattr(self, "reader"):
            self.reader.close()

    @rule(action=_actions())
    def step(self, action: tuple[Any, ...]) -> None:
        name, *arguments = action
        if self.model.attempts or name not in ("progress", "succeed", "fail", "wind_up"):
            getattr(self, name)(*arguments)

    # Owners

    def own(self, who: str, verb: str) -> None:
        me = self._actor(who)
        if verb == "leave" and me.run is not None:
            me.store.runs.leave(me.run)
            me.owns = me.owns and me.run.epoch != self.model.epoch
        elif verb == "die":
            self._die(me)
        elif verb == "take":
            self._take(me)
        elif verb == "take_over":
            # The other one is killed, we go on, and it may yet wake up.
            self._die(self._other(me))
            self._take(me)
            self.move_run("owner", "begin")

    def _die(self, controller: Controller) -> None:
        controller.store.close()
        controller.store, controller.owns = self.open(), False

    def _take(self, me: Controller) -> None:
        other = self._other(me)
        if other.owns:
            with pytest.raises(Owned, match=other.name):
                me.store.runs.take(self.run_id, me.name)
            return
        me.run = me.store.runs.take(self.run_id, me.name)
        me.owns = True
        self.model.epoch += 1
        assert me.run.epoch == self.model.epoch

    def move_run(self, who: str, verb: str) -> None:
        me = self._actor(who)
        if me.run is None:
            return
        arguments = [{"cause": "operator", "message": "m"}] if verb == "pause" else []
        changed = getattr(me.store.runs, verb)(me.run, *arguments)
        assert (changed is not None) == (self._current(me) and self.model.move(verb))

    # Attempts

    def claim(self, who: str, first: int, last: int, memory_mb: int) -> None:
        me = self._actor(who)
        for number in range(first, last + 1):
            if me.run is not None:
                claim = cases.new_claim(number, memory_mb=memory_mb, limit_mb=MEMORY_MB)
                claimed = me.store.attempts.claim(me.run, claim)
                expected = self._current(me) and self.model.claim(number, memory_mb, self.clock())
                assert (claimed is not None) == expected

    def progress(self, who: str, pick: int, state: AttemptState | None, step: int) -> None:
        me, (attempt, model) = self._actor(who), self._pick(pick)
        if me.run is not None:
            progress = Progress(attempt=attempt, last_event=step, state=state, lines=({"step": 1},))
            changed = me.store.attempts.progress(me.run, progress)
            assert (changed is not None) == (self._current(me) and self.model.progress(model, state, step))

    def succeed(self, who: str, pick: int) -> None:
        me, (attempt, model) = self._actor(who), self._pick(pick)
        if me.run is None:
            return
        task = self.model.tasks[model.task]
        counts = task.state not in (T.DONE, T.CANCELLED)
        finished = me.store.attempts.finish(me.run, cases.with_verdict(attempt))
        expected = self._current(me) and self.model.finish(model, Outcome.OK, T.DONE, 0.0)
        assert (finished is not None) == expected
        if finished is not None:
            live = [other.number for other in task.attempts if other.live and other is not model]
            assert finished.counts == counts
            assert [sibling.number for sibling in finished.siblings] == (live if counts else [])

    def fail(self, who: str, pick: int, outcome: Outcome, state: TaskState, wait: float, collect: bool) -> None:
        me, (attempt, model) = self._actor(who), self._pick(pick)
        if me.run is None:
            return
        not_before = self.clock() + wait
        finished = me.store.attempts.finish(me.run, cases.with_failure(attempt, state, outcome, not_before=not_before))
        assert (finished is not None) == (self._current(me) and self.model.finish(model, outcome, state, not_before))
        if collect:
            self.attempts_move_along_the_edges_and_never_vanish()
            self._collect(me, attempt, model)

    def wind_up(self, who: str, pick: int, lost: bool, state: TaskState | None) -> None:
        """Collect an attempt, or judge it again."""
        me, (attempt, model) = self._actor(who), self._pick(pick)
        if me.run is None:
            return
        if state is None:
            self._collect(me, attempt, model)
            return
        outcome, failure = Outcome.LOST if lost else Outcome.TASK_ERROR, cases.new_failure(consumes=not lost)
        judged = me.store.attempts.rejudge(me.run, attempt, failure, outcome, 2, state)
        assert (judged is not None) == (self._current(me) and self.model.rejudge(model, outcome, state))

    def _collect(self, me: Controller, attempt: Attempt, model: ModelAttempt) -> None:
        assert me.run is not None
        collected = me.store.attempts.collect(me.run, attempt, [])
        assert (collected is not None) == (self._current(me) and self.model.collect(model))

    # Steering

    def steer(self, who: str, number: int, verb: str) -> None:
        me, keys = self._actor(who), [f"task_{number}"]
        if me.run is None:
            return
        if verb == "hold":
            affected = me.store.tasks.hold(me.run, keys, "asked")
        elif verb == "release":
            affected = me.store.tasks.release(me.run, keys)
        else:
            affected = me.store.tasks.retry(me.run, keys, list(T))
        assert affected == (keys if self._current(me) and getattr(self.model, verb)(number) else [])

    def cancel_tasks(self, who: str) -> None:
        me = self._actor(who)
        if me.run is not None:
            cancelled = me.store.tasks.cancel(me.run, "asked")
            expected = self.model.cancel_tasks() if self._current(me) else []
            assert cancelled == [f"task_{number}" for number in expected]

    def wait(self, who: str, seconds: float) -> None:
        self.clock.advance(seconds)
        me = self._actor(who)
        if me.run is not None:
            live = sum(1 for attempt in self.model.attempts if attempt.live)
            assert me.store.attempts.renew(me.run, 60.0) == (live if self._current(me) else 0)

    # What must hold after every step

    @invariant()
    def store_and_model_agree(self) -> None:
        run = self.reader.runs.get(self.run_id)
        assert (run.state, run.epoch) == (self.model.run, self.model.epoch)
        for task in self.reader.tasks.all(self.run_id):
            model = self.model.tasks[task.number]
            assert (task.state, task.hold_asked) == (model.state, model.hold_asked)
            assert (task.verdict is not None) == (task.state is T.DONE)
            assert model.verdicts <= 1
            assert (task.consumed, task.lost) == (model.count("consumed"), model.count("lost"))
            attempts = self.reader.attempts.all(self.run_id, task.number)
            assert [attempt.number for attempt in attempts] == list(range(1, task.attempts + 1))
            assert [(attempt.state, attempt.outcome) for attempt in attempts] == [
                (attempt.state, attempt.outcome) for attempt in model.attempts
            ]

    @invariant()
    def events_tell_the_same(self) -> None:
        for event in self.reader.events.of_run(self.run_id, after=self.replay.last):
            self.replay.feed(event)
        run = self.reader.runs.get(self.run_id)
        assert (self.replay.run, self.replay.epoch) == (run.state, run.epoch)
        assert self.replay.tasks == {task.key: task.state for task in self.reader.tasks.all(self.run_id)}
        assert self.replay.attempts == {attempt.id: attempt.state for attempt in self.reader.attempts.all(self.run_id)}

    @invariant()
    def attempts_move_along_the_edges_and_never_vanish(self) -> None:
        now = {attempt.id: attempt for attempt in self.reader.attempts.all(self.run_id)}
        assert self.seen.keys() <= now.keys()
        for name, before in self.seen.items():
            after = now[name]
            late = before.outcome is Outcome.LOST and after.outcome is Outcome.OK
            assert before.state is after.state or late or transitions.allowed(before.state, after.state)
            assert (before.token, before.worker, before.claimed_at) == (after.token, after.worker, after.claimed_at)
        self.seen = now

    @invariant()
    def memory_is_promised_once(self) -> None:
        live = [attempt for attempt in self.reader.attempts.unended(self.run_id) if attempt.outcome is None]
        assert sum(attempt.requests.memory_mb for attempt in live) <= MEMORY_MB

    # Parts

    def _actor(self, who: str) -> Controller:
        newest = max(self.controllers, key=lambda controller: controller.run.epoch if controller.run else -1)
        return newest if who == "owner" else self._other(newest)

    def _other(self, controller: Controller) -> Controller:
        return self.controllers[0] if controller is self.controllers[1] else self.controllers[1]

    def _current(self, controller: Controller) -> bool:
        return controller.run is not None and controller.run.epoch == self.model.epoch

    def _pick(self, pick: int) -> tuple[Attempt, ModelAttempt]:
        """Live attempts first, so that few steps are about what is over."""
        models = sorted(self.model.attempts, key=lambda attempt: not attempt.live)
        model = models[pick % len(models)]
        return self.reader.attempts.all(self.run_id, model.task)[model.number - 1], model
