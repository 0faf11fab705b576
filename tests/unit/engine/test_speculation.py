"""Second copies of tasks on slow hosts: when they are made, whose verdict counts, and what a dead controller changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.engine_books import Books

from evalfleet.core.speculation import Running, slow_hosts, worth_a_copy
from evalfleet.model import Outcome, TaskState

TASKS = 24


def slow_host(home: Path, **policy: Any) -> tuple[Books, str]:
    """Tasks on three hosts, one of which takes three times as long as the others: its last task is left alone."""
    books = Books(home, TASKS, hosts=("quick", "brisk", "slow"), price=1.0, **{"speculate": True, **policy})
    live = {books.attempt(one).host: one for one in books.start()}
    for turn in range(1, 40):
        ends = [one for host, one in live.items() if host != "slow" or turn % 3 == 0]
        seen = [books.ends(one, 30.0 if books.attempt(one).host == "slow" else 10.0) for one in ends]
        waiting = books.store.tasks.counts(books.run.id)[TaskState.QUEUED]
        if not waiting and "slow" in live and live["slow"] not in ends:
            copies = books.start(*seen, after_s=10.0)
            copies += books.start(after_s=6.0)
            assert len(copies) <= 1
            return books, live["slow"] if not copies else f"{live['slow']} {copies[0]}"
        started = books.start(*seen, after_s=10.0)
        for one in ends:
            del live[books.attempt(one).host]
        live |= {books.attempt(one).host: one for one in started}
    raise AssertionError("the queue does not end")


def doubled(home: Path, **policy: Any) -> tuple[Books, str, str]:
    books, both = slow_host(home, **policy)
    original, copy = both.split()
    return books, original, copy


def verdicts(books: Books) -> int:
    return [event.type for event in books.store.events.of_run(books.run.id, limit=1000)].count("task.done")


def test_a_task_on_a_slow_host_is_doubled_and_the_first_verdict_counts(tmp_path: Path):
    books, original, copy = doubled(tmp_path)
    assert original.rsplit(".", 1)[0] == copy.rsplit(".", 1)[0]
    assert books.attempt(original).host == "slow"
    assert books.attempt(copy).host in ("quick", "brisk")
    orders = books.step(books.ends(copy, 10.0), after_s=10.0)
    assert orders.stop == {"slow": [original]}
    task = books.store.tasks.at(books.run.id, books.attempt(copy).task_number)
    assert (task.state, task.worker) == (TaskState.DONE, books.attempt(copy).worker)
    books.step(books.seen(original, "ended", cause="cancelled", duration_s=40.0))
    assert books.attempt(original).outcome is Outcome.CANCELLED
    assert books.attempt(original).cost_usd > 0  # what it cost is counted
    assert verdicts(books) == TASKS
    assert books.store.attempts.doubled(books.run.id) == 1
    assert books.store.tasks.counts(books.run.id)[TaskState.DONE] == TASKS


def test_of_two_verdicts_at_the_same_step_the_originals_counts(tmp_path: Path):
    books, original, copy = doubled(tmp_path)
    books.step(books.ends(copy, 10.0), books.ends(original, 50.0), after_s=10.0)
    task = books.store.tasks.at(books.run.id, books.attempt(copy).task_number)
    assert task.worker == books.attempt(original).worker
    assert verdicts(books) == TASKS


def test_a_copy_that_fails_leaves_the_original_alone(tmp_path: Path):
    books, original, copy = doubled(tmp_path)
    number = books.attempt(copy).task_number
    books.step(books.lost(copy), after_s=1.0)
    assert books.store.tasks.at(books.run.id, number).state is TaskState.RUNNING
    books.step(books.ends(original, 60.0), after_s=5.0)
    assert books.store.tasks.at(books.run.id, number).state is TaskState.DONE
    assert verdicts(books) == TASKS


def test_the_next_controller_knows_both_and_gives_one_verdict(tmp_path: Path):
    books, original, copy = doubled(tmp_path)
    books.kill()
    assert {original, copy} <= set(books.dispatcher.live)
    assert not books.start(after_s=30.0)  # it is not doubled once more
    books.step(books.ends(copy, 10.0), after_s=10.0)
    books.kill()  # before the original was stopped
    assert books.step(after_s=1.0).stop == {"slow": [original]}
    assert not books.step(books.ends(original, 70.0), after_s=1.0).launch  # it had ended before it heard
    assert verdicts(books) == TASKS
    number = books.attempt(copy).task_number
    assert books.store.tasks.at(books.run.id, number).worker == books.attempt(copy).worker


def test_it_is_off_by_default(tmp_path: Path):
    _, left = slow_host(tmp_path, speculate=False)
    assert len(left.split()) == 1


def test_a_host_with_long_tasks_is_not_slow():
    assert slow_hosts({"a": [1.0, 1.1], "b": [0.9, 1.0], "c": [2.0, 1.9]}) == {"c"}
    assert slow_hosts({"a": [1.0, 1.1], "c": [9.0]}) == frozenset()
    assert slow_hosts({"c": [9.0, 9.0]}) == frozenset()
    running = [Running(attempt="x", host="a", share=9.0), Running(attempt="y", host="new", share=3.5)]
    shares = {"a": [1.0, 1.1], "b": [0.9, 1.0]}
    assert [one.attempt for one in worth_a_copy(running, shares)] == ["y"]  # x is long, its host is not slow
