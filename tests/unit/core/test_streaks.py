"""Who speaks against a host, and whether that is enough."""

from __future__ import annotations

import pytest

from evalfleet.core.failures.attribution import History, Where, attribute
from evalfleet.core.failures.kinds import failure
from evalfleet.model import Blame, Failure, Kind

HOSTS = ("a", "b", "c", "d")


class Run:
    """A history that is asked and told at once, on hosts that all serve."""

    def __init__(self) -> None:
        self.history = History()
        self.now = 0.0

    def _where(self, task: str, host: str, run_s: float) -> Where:
        self.now += 1.0
        return Where(task=task, worker=f"{host}-1", host=host, run_s=run_s, claimed_at=self.now - 0.5, at=self.now)

    def fail(self, task: str, host: str, kind: Kind = Kind.BAD_EXIT, run_s: float = 0.1) -> Failure:
        where = self._where(task, host, run_s)
        found = attribute(failure(kind, "exit status 1"), where, self.history, [one for one in HOSTS if one != host])
        self.history.add(where, found)
        return found

    def succeed(self, task: str, host: str) -> None:
        self.history.add(self._where(task, host, 5.0), None)

    def is_suspect(self, host: str) -> bool:
        return self.history.streaks.is_suspect(host, [one for one in HOSTS if one != host])


@pytest.fixture
def run() -> Run:
    made = Run()
    made.succeed("first", "a")
    return made


@pytest.mark.parametrize(
    "kind", [Kind.BAD_EXIT, Kind.LAUNCH_FAILED, Kind.SIGNALLED, Kind.RESULT_MISSING, Kind.TASK_ERROR]
)
def test_three_tasks_in_a_row_are_the_hosts(run: Run, kind: Kind):
    assert [run.fail(task, "a", kind).blame for task in "xyz"] == [Blame.TASK, Blame.TASK, Blame.WORKER]
    assert run.is_suspect("a")


@pytest.mark.parametrize(
    ("kind", "run_s"), [(Kind.BAD_EXIT, 30.0), (Kind.OUT_OF_MEMORY, 0.1), (Kind.BAD_FLAG, 0.1), (Kind.CRASH, 0.1), (Kind.TIMEOUT, 0.1)]
)  # fmt: skip
def test_what_is_slow_or_follows_from_parameters_says_nothing(run: Run, kind: Kind, run_s: float):
    assert {run.fail(task, "a", kind, run_s).blame for task in "uvwxyz"} == {Blame.TASK}
    assert not run.is_suspect("a")


def test_a_world_that_breaks_speaks_against_its_host_after_any_time(run: Run):
    for task in "xyz":
        run.fail(task, "a", Kind.ENVIRONMENT_FAILED, run_s=90.0)
    assert run.is_suspect("a")


def test_one_task_again_and_again_is_one_witness(run: Run):
    for _ in range(9):
        run.fail("x", "a")
    assert not run.is_suspect("a")


def test_a_verdict_between_ends_it(run: Run):
    run.fail("x", "a")
    run.fail("y", "a")
    run.succeed("good", "a")
    assert run.fail("z", "a").blame is Blame.TASK
    assert not run.is_suspect("a")


def test_tasks_that_fail_elsewhere_too_are_no_witnesses(run: Run):
    for task in "xyz":
        run.fail(task, "a")
    run.history.streaks.accuse("a")
    assert run.history.streaks.acquitted() == []
    run.fail("x", "b")
    run.fail("y", "c")
    assert run.history.streaks.acquitted() == ["a"]
    assert not any(run.is_suspect(host) for host in "bc")


def test_where_most_tasks_fail_quickly_no_host_is_accused(run: Run):
    for number in range(60):
        if number % 3:
            assert run.fail(f"t{number}", HOSTS[number % 4]).blame is Blame.TASK
        else:
            run.succeed(f"t{number}", HOSTS[number % 4])
    assert not any(run.is_suspect(host) for host in HOSTS)


def test_hosts_that_fail_alike_are_not_accused(run: Run):
    for number in range(40):
        run.succeed(f"ok{number}", HOSTS[number % 4])
    for number in range(24):
        assert run.fail(f"t{number}", HOSTS[number % 4]).blame is Blame.TASK
    assert not any(run.is_suspect(host) for host in HOSTS)


def test_the_last_host_that_serves_goes_on(run: Run):
    for task in "xyz":
        run.fail(task, "a")
    assert not run.history.streaks.is_suspect("a", ())


def test_a_host_that_cannot_start_anything_is_accused_at_once(run: Run):
    found = run.fail("x", "b", Kind.HOST_FAILED, run_s=0.0)
    assert (found.blame, found.consumes) == (Blame.WORKER, False)
    assert run.is_suspect("b")
    assert "could not start" in run.history.streaks.words("b")


def test_a_cause_that_one_host_alone_shows_is_not_the_pools():
    run = Run()
    blames = [run.fail(task, "a", Kind.LAUNCH_FAILED, run_s=60.0).blame for task in "wxyz"]
    assert Blame.POOL not in blames
    assert run.fail("w", "b", Kind.LAUNCH_FAILED, run_s=60.0).blame is Blame.POOL
