"""What becomes of tasks whose failure was not their own, or may not have been: step by step, on a clock of the test's."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.support.engine_books import Books
from tests.support.engine_play import PATIENT

from evalfleet.core.hosts.quarantine import Terms
from evalfleet.hosts.base import AttemptEvent
from evalfleet.model import Blame, TaskState

MISSING = "ImportError: no module named cv"


def failed(books: Books, attempt: str, line: str = "", duration_s: float = 30.0) -> AttemptEvent:
    return books.seen(attempt, "ended", cause="exited", exit_code=1, duration_s=duration_s, tail=line)


def task(attempt: str) -> int:
    return int(attempt.rsplit(".", 2)[1])


def state(books: Books, number: int) -> TaskState:
    return books.store.tasks.at(books.run.id, number).state


def launched(books: Books, *seen: AttemptEvent, after_s: float = 1.0) -> dict[str, list[str]]:
    """What starts by this, or a second later as a retry, by host."""
    found: dict[str, list[str]] = {}
    for one in (*books.start(*seen, after_s=after_s), *books.start(after_s=1.0)):
        found.setdefault(books.attempt(one).host, []).append(one)
    return found


def test_tasks_that_get_their_attempts_back_start_again(tmp_path: Path):
    books = Books(tmp_path, 3, slots=4, attempts=1, max_lost=1)
    first = books.start()
    assert len(first) == 3
    for attempt in first[:2]:
        assert not books.start(failed(books, attempt, MISSING), after_s=1.0)
    again = books.start(failed(books, first[2], MISSING), after_s=1.0)
    assert [state(books, number) for number in (1, 2, 3)] == [TaskState.RUNNING, TaskState.RUNNING, TaskState.HELD]
    assert sorted(map(task, again)) == [1, 2]
    books.step(*(failed(books, attempt, MISSING) for attempt in again))
    assert books.step(after_s=1.0).done


def test_only_attempts_of_the_pools_cause_are_given_back(tmp_path: Path):
    books = Books(tmp_path, 3, slots=3, attempts=3)
    first = books.start()
    [second] = launched(books, failed(books, first[0], "KeyError: 'goal'"))["one"]
    for attempt in (second, *first[1:]):
        books.start(failed(books, attempt, MISSING), after_s=1.0)
    own, pools = books.attempt(first[0]).failure, books.attempt(second).failure
    assert own is not None
    assert pools is not None
    assert (own.blame, own.consumes) == (Blame.TASK, True)
    assert (pools.blame, pools.consumes) == (Blame.POOL, False)
    assert books.store.tasks.at(books.run.id, 1).consumed == 1


def test_a_task_that_failed_by_its_own_fault_stays_so_at_the_next_controller(tmp_path: Path):
    books = Books(tmp_path, 4, slots=4, attempts=1)
    first = books.start()
    again = [one for attempt in first[:3] for one in books.start(failed(books, attempt, MISSING), after_s=1.0)]
    own = next(one for one in again if task(one) == 1)
    books.start(failed(books, own, "KeyError: 'goal'"), after_s=1.0)
    assert state(books, 1) is TaskState.FAILED
    books.kill()
    books.start(failed(books, first[3], MISSING), after_s=1.0)
    found = books.attempt(first[3]).failure
    assert found is not None
    assert found.blame is Blame.POOL
    assert state(books, 1) is TaskState.FAILED


def test_what_a_host_showed_after_an_earlier_failure_does_not_make_the_next_one_final(tmp_path: Path):
    """It worked then, and has broken since: the other host is asked before the task fails for good."""
    books = Books(tmp_path, 5, hosts=("a", "b"), attempts=2)
    started = launched(books)
    [one], [busy] = started["a"], started["b"]
    [victim] = launched(books, books.ends(one, 1.0))["a"]
    [later] = launched(books, failed(books, victim))["a"]
    [later] = launched(books, books.ends(later, 1.0))["a"]
    [again] = launched(books, books.ends(later, 1.0))["a"]
    assert task(again) == task(victim), "the host is believed, so the retry may have it"
    assert not launched(books, failed(books, again))
    assert state(books, task(victim)) is TaskState.QUEUED
    [last] = launched(books, books.ends(busy, 1.0))["b"]
    assert task(last) == task(victim)
    books.step(books.ends(last, 1.0))
    assert state(books, task(victim)) is TaskState.DONE


def test_a_trial_that_passes_by_time_gives_the_host_all_its_slots(tmp_path: Path):
    settings = replace(PATIENT, quarantine=Terms(pause_s=5.0))
    books = Books(tmp_path, 20, hosts=("bad", "good"), slots=2, attempts=1, timeout_s=1000.0, settings=settings)
    live = launched(books)["bad"]
    live = launched(books, *(books.ends(one, 1.0) for one in live))["bad"]
    live = launched(books, *(failed(books, one, duration_s=0.1) for one in live))["bad"]
    assert not launched(books, *(failed(books, one, duration_s=0.1) for one in live))
    [canary] = [one.attempt_id for one in books.step(after_s=10.0).launch["bad"]]
    orders = books.step(books.seen(canary, "ended", cause="exited", exit_code=0, duration_s=0.1), after_s=1.0)
    [trial] = [one.attempt_id for one in orders.launch["bad"]]
    books.step(books.seen(trial, "started"), after_s=1.0)
    orders = books.step(after_s=61.0)
    assert orders.wait_s == 0.0
    assert len(books.step().launch["bad"]) == 1


class _Reads:
    """Counts what is asked of a store."""

    def __init__(self, books: Books, monkeypatch: pytest.MonkeyPatch) -> None:
        self.tasks = self.batches = 0
        read, batch = books.store.tasks.get, books.store.batch

        def task(run_id: str, key: str) -> object:
            self.tasks += 1
            return read(run_id, key)

        def batched() -> object:
            self.batches += 1
            return batch()

        monkeypatch.setattr(books.store.tasks, "get", task)
        monkeypatch.setattr(books.store, "batch", batched)


@pytest.mark.parametrize("hosts", [("one",), ("one", "two")])
def test_the_ends_of_failing_tasks_do_not_read_those_that_failed_before(
    tmp_path: Path, hosts: Sequence[str], monkeypatch: pytest.MonkeyPatch
):
    books = Books(tmp_path, 40, hosts=hosts, attempts=1)
    reads = _Reads(books, monkeypatch)
    live, ended = books.start(), 0
    while live:
        ended += len(live)
        live = books.start(*(failed(books, one, duration_s=0.1) for one in live), after_s=1.0)
    assert ended >= 40
    assert reads.tasks <= ended


def test_tasks_that_wait_for_another_host_cost_nothing_while_nothing_happens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    books = Books(tmp_path, 11, hosts=("a", "b"), attempts=1)
    found = launched(books)
    while "a" in found:
        found = launched(books, *(failed(books, one) for one in found["a"]))
    waiting = books.store.tasks.counts(books.run.id)[TaskState.QUEUED]
    assert waiting == 10
    reads = _Reads(books, monkeypatch)
    for _ in range(5):
        books.step()
    assert (reads.tasks, reads.batches) == (0, 0)
    del books.hosts["b"]
    books.dispatcher.hosts.left("b")
    books.step()
    assert books.store.tasks.counts(books.run.id)[TaskState.FAILED] == 10
