"""Who is blamed, given the history of the run."""

from __future__ import annotations

import pytest

from evalfleet.core.failures.attribution import History, Where, attribute
from evalfleet.core.failures.kinds import failure
from evalfleet.model import Blame, Failure, Kind


def at(task: str, worker: str = "w0", host: str | None = None, executable: str = "agent", pool: str = "p") -> Where:
    return Where(task=task, worker=worker, host=host or f"h-{worker}", executable=executable, pool=pool)


class Run:
    """A history that is asked and told at once."""

    def __init__(self) -> None:
        self.history = History()

    def fail(self, kind: Kind, where: Where, evidence: str = "it broke") -> Failure:
        found = attribute(failure(kind, evidence), where, self.history)
        self.history.add(where, found)
        return found

    def succeed(self, where: Where) -> None:
        self.history.add(where, None)


@pytest.fixture
def run() -> Run:
    return Run()


def test_a_stall_is_the_workers_first_and_the_tasks_on_a_second_worker(run: Run):
    assert run.fail(Kind.STALL, at("a", "w0")).blame is Blame.WORKER
    assert run.fail(Kind.STALL, at("a", "w0")).blame is Blame.WORKER
    second = run.fail(Kind.STALL, at("a", "w1"))
    assert (second.blame, second.consumes) == (Blame.TASK, True)


def test_a_worker_that_worked_in_between_is_as_good_as_another(run: Run):
    assert run.fail(Kind.STALL, at("a")).blame is Blame.WORKER
    run.succeed(at("b"))
    assert run.fail(Kind.STALL, at("a")).blame is Blame.TASK


def test_other_kinds_need_three_workers(run: Run):
    run.succeed(at("ok", "w9"))
    blames = [run.fail(Kind.START_TIMEOUT, at("a", f"w{i}")).blame for i in range(3)]
    assert blames == [Blame.WORKER, Blame.WORKER, Blame.TASK]


@pytest.mark.parametrize("kind", [Kind.RUNNER_LOST, Kind.WORKER_LOST, Kind.PREEMPTED])
def test_lost_attempts_are_never_the_tasks(run: Run, kind: Kind):
    found = [run.fail(kind, at("a", f"w{i}")) for i in range(6)]
    assert {(one.blame, one.consumes) for one in found} == {(Blame.WORKER, False)}


def test_a_host_is_blamed_when_three_tasks_failed_there_and_one_succeeded_elsewhere(run: Run):
    for key in ("a", "b"):
        assert run.fail(Kind.STALL, at(key, "w0")).consumes
    run.succeed(at("a", "w1"))
    assert not run.history.blames_host("h-w0")
    third = run.fail(Kind.STALL, at("c", "w0"))
    assert (third.blame, third.consumes) == (Blame.WORKER, False)
    assert list(run.history.blamed_hosts()) == ["h-w0"]
    run.history.unquarantine("h-w0")
    assert not list(run.history.blamed_hosts())
    assert run.fail(Kind.STALL, at("d", "w0")).consumes


def test_a_host_is_not_blamed_without_a_success_elsewhere(run: Run):
    for key in "abcdef":
        assert run.fail(Kind.STALL, at(key, "w0")).consumes
    run.succeed(at("a", "w0"))
    assert not run.history.blames_host("h-w0")


def test_failures_of_the_tasks_own_never_blame_a_host(run: Run):
    for key in "abcdef":
        assert run.fail(Kind.BAD_EXIT, at(key, "w0"), "exit status 1").blame is Blame.TASK
    run.succeed(at("a", "w1"))
    assert run.fail(Kind.BAD_EXIT, at("g", "w0"), "exit status 1").blame is Blame.TASK
    assert not run.history.blames_host("h-w0")


def test_a_good_host_with_some_hanging_tasks_is_not_blamed(run: Run):
    for number in range(30):
        run.succeed(at(f"ok{number}", "w0"))
    for key in "abc":
        run.fail(Kind.STALL, at(key, "w0"))
        run.succeed(at(key, "w1"))
    assert not run.history.blames_host("h-w0")


def test_the_same_cause_on_three_tasks_is_the_pools(run: Run):
    line = "No such file or directory: 'agent'"
    blames = [run.fail(Kind.LAUNCH_FAILED, at(key), line) for key in ("a", "a", "b", "c", "d")]
    assert [one.blame for one in blames] == [Blame.TASK] * 3 + [Blame.POOL] * 2
    assert [one.consumes for one in blames] == [True] * 3 + [False] * 2


def test_a_program_that_once_worked_is_not_the_pools_fault(run: Run):
    run.succeed(at("ok"))
    for key in "abcdef":
        assert run.fail(Kind.LAUNCH_FAILED, at(key), "no such file").blame is Blame.TASK
    other = [run.fail(Kind.LAUNCH_FAILED, at(key, executable="other"), "no such file").blame for key in "abc"]
    assert other[-1] is Blame.POOL
    pools = [run.fail(Kind.LAUNCH_FAILED, at(key, pool="q"), "no such file").blame for key in "abc"]
    assert pools[-1] is Blame.POOL


def test_a_first_success_ends_a_wrong_suspicion(run: Run):
    blames = [run.fail(Kind.BAD_EXIT, at(key), "injected").blame for key in "abc"]
    assert blames[-1] is Blame.POOL
    run.succeed(at("d"))
    assert run.fail(Kind.BAD_EXIT, at("e"), "injected").blame is Blame.TASK


def test_silent_exits_are_the_tasks(run: Run):
    for key in "abcdef":
        assert run.fail(Kind.BAD_EXIT, at(key), "exit status 1").blame is Blame.TASK


def test_lines_that_differ_by_key_and_numbers_are_one_cause(run: Run):
    found = [run.fail(Kind.BAD_EXIT, at(f"t_{n}"), f"KeyError: 't_{n}' at line {n * 7}") for n in range(3)]
    assert found[-1].blame is Blame.POOL


@pytest.mark.parametrize("kind", [Kind.TIMEOUT, Kind.STALL, Kind.OUT_OF_MEMORY])
def test_some_kinds_are_never_the_pools(run: Run, kind: Kind):
    assert all(run.fail(kind, at(key), "the same line").blame is not Blame.POOL for key in "abcdef")


def test_a_full_disk_is_the_pools_until_something_works_again(run: Run):
    run.succeed(at("ok"))
    blames = [run.fail(Kind.DISK_FULL, at(key, f"w{key}"), f"no space for {key}").blame for key in "abc"]
    assert blames == [Blame.WORKER, Blame.WORKER, Blame.POOL]
    run.succeed(at("d"))
    assert run.fail(Kind.DISK_FULL, at("e"), "no space").blame is Blame.WORKER


def test_cancelled_attempts_say_nothing(run: Run):
    run.fail(Kind.CANCELLED, at("a"))
    assert run.history.failures == 0
    assert run.history.failed_on("a") == frozenset()


def test_failed_on_is_forgotten_with_the_verdict(run: Run):
    run.fail(Kind.BAD_EXIT, at("a", "w0"))
    run.fail(Kind.STALL, at("a", "w1"))
    assert run.history.failed_on("a") == {"w0", "w1"}
    run.succeed(at("a", "w2"))
    assert run.history.failed_on("a") == frozenset()
    assert (run.history.successes, run.history.failures) == (1, 2)


def test_different_causes_do_not_grow_without_bound(run: Run):
    for number in range(3000):
        run.fail(Kind.BAD_EXIT, at(f"t{number}"), "boom " + "x" * number)
    assert max(len(lines) for lines in run.history._causes.values()) <= 1000
