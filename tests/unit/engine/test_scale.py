"""What a step costs must not grow with what is over, nor with hosts that are full. Counted in work, not in milliseconds."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pytest
from tests.support.finished_tasks import add_finished
from tests.support.simulated_fleet import SimulatedFleet, SimulatedRun

from evalfleet.engine.attempts.live import LiveAttempts
from evalfleet.hosts.base import AttemptEvent
from evalfleet.model import Policy, TaskSpec
from evalfleet.store.database.sqlite import SqliteDatabase
from evalfleet.store.open import open_store
from evalfleet.testing.clock import FakeClock

TICKS = 20  # instructions of SQLite that are counted as one
SLOTS = 4
ENDS = 12


class Work:
    """What happened inside: calls of Python functions, and instructions that SQLite executed."""

    def __init__(self, run: SimulatedRun) -> None:
        self.steps = 0
        self._counts: Counter[str] = Counter()
        database = run.store.database
        assert isinstance(database, SqliteDatabase)
        self._connection = database.connection

    def of(self, action: Callable[[], None]) -> None:
        self.steps += 1

        def tick() -> int:
            self._counts["sqlite"] += 1
            return 0

        def called(_frame: object, event: str, _arg: object) -> None:
            if event == "call":
                self._counts["python"] += 1

        self._connection.set_progress_handler(tick, TICKS)
        before = sys.getprofile()
        sys.setprofile(called)
        try:
            action()
        finally:
            sys.setprofile(before)
            self._connection.set_progress_handler(None, TICKS)

    def a_step(self, what: str) -> float:
        return self._counts[what] / self.steps


def _step(run: SimulatedRun, seen: Sequence[AttemptEvent]) -> None:
    run.deliver(run.step(seen))


def _work(home: Path, *, hosts: int, finished: int, workers: int | None = None) -> Work:
    """Of the steps in which attempts end and others start, while all slots are in use."""
    clock = FakeClock()
    store = open_store(home, clock)
    fleet = SimulatedFleet(clock, hosts, SLOTS, lambda rng: rng.uniform(300.0, 900.0))
    workers = workers or hosts * SLOTS
    specs = (TaskSpec(key=f"t{turn}", domain="d", command=("/bin/true",)) for turn in range(workers + 2 * ENDS + 5))
    made = store.runs.submit("x", Policy(workers=workers), specs, folder="/", base_env={})
    run = SimulatedRun(store, made, fleet)
    work, ends = Work(run), 0
    while ends < ENDS:
        fleet.happen()
        run.renew()
        if not run.is_awake:
            clock.advance(max(0.0, min(fleet.next_at, run.next_at) - clock()))
            continue
        seen = run.take()
        ended = sum(one.type == "ended" for one in seen)
        if finished and ended:
            [done] = store.tasks.page(made.id, states=["done"], limit=1) or [None]
            if done is not None:
                add_finished(store, made.id, done["number"], finished)
                finished = 0
        if ended and not finished and len(run.dispatcher.live) >= workers:
            work.of(partial(_step, run, seen))
            ends += ended
        else:
            run.deliver(run.step(seen))
    store.close()
    return work


@pytest.mark.parametrize("what", ["sqlite", "python"])
def test_a_step_costs_the_same_however_many_tasks_are_finished(tmp_path: Path, what: str):
    few = _work(tmp_path / "few", hosts=5, finished=10).a_step(what)
    many = _work(tmp_path / "many", hosts=5, finished=5_000).a_step(what)
    assert many < 1.3 * few


def test_a_step_calls_little_for_a_host_that_is_full(tmp_path: Path):
    few = _work(tmp_path / "few", hosts=5, finished=0).a_step("python")
    many = _work(tmp_path / "many", hosts=100, finished=0).a_step("python")
    assert (many - few) / 95 < 12  # a host; it was more than its attempts times all hosts


def test_live_attempts_are_known_by_their_hosts(tmp_path: Path):
    clock = FakeClock()
    store = open_store(tmp_path, clock)
    specs = [TaskSpec(key=f"t{turn}", domain="d", command=("x",)) for turn in range(4)]
    fleet = SimulatedFleet(clock, 2, 2, lambda _: 60.0)
    run = SimulatedRun(
        store, store.runs.submit("x", Policy(workers=4, breaker=False), specs, folder="/", base_env={}), fleet
    )
    while len(run.dispatcher.live) < 4:
        run.deliver(run.step(run.take()))
    live: LiveAttempts = run.dispatcher.live
    assert live.counts() == {"host00000": 2, "host00001": 2}
    assert live.on("host00000").keys() | live.on("host00001").keys() == live.keys()
    for attempt in list(live.on("host00000")):
        assert live.take(attempt) is not None
    assert live.take("unknown") is None
    assert live.hosts() == {"host00001"}
    assert not live.at("host00000")
    assert len(live) == 2
    store.close()
