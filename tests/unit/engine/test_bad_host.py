"""One bad host never costs the score: what fails there is tried elsewhere, and the host is set apart."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest
from msgspec.structs import replace
from tests.support.engine_play import PATIENT, Play, end_all, host, opened, played
from tests.support.fake_backend import FakeBackend

from evalfleet.core.hosts.quarantine import Terms
from evalfleet.engine.controller import take
from evalfleet.model import Blame, Distribution, Outcome, RunState, Task, TaskState

pytestmark = pytest.mark.anyio

BROKEN = {
    "launch_failed": {"cause": "launch_failed", "exit_code": None, "errno": 2, "message": "No such file", "duration_s": 0.0},
    "bad_exit": {"cause": "exited", "exit_code": 1, "duration_s": 0.1},
    "environment_failed": {
        "exit_code": 0, "result": {"error": "no display", "error_kind": "environment_failed"}, "has_result": True,
        "duration_s": 0.1,
    },
}  # fmt: skip
NEVER = replace(PATIENT, quarantine=Terms(pause_s=600.0))
SOON = replace(PATIENT, quarantine=Terms(pause_s=0.05))


def fail_all(backend: FakeBackend, **end: object) -> int:
    live = [one for one, attempt in backend.attempts.items() if attempt.live]
    for attempt_id in live:
        backend.end(attempt_id, **end)
    return len(live)


def tasks(play: Play) -> list[Task]:
    with opened(play.home) as reader:
        return list(reader.tasks.all(play.run.id))


async def first_verdicts(play: Play, *hosts: FakeBackend) -> None:
    for one in hosts:
        await play.launched(one)
        one.end(one.launched[0])


@pytest.mark.parametrize("kind", BROKEN)
@pytest.mark.parametrize("attempts", [1, 3])
async def test_a_host_that_breaks_while_the_other_is_busy(home: Path, kind: str, attempts: int):
    """The bad one is free at once, again and again; the good one is busy until the bad one was taken out of use."""
    bad, good = host("bad"), host("good")
    async with played(Play(home, 12, bad, good, attempts=attempts), NEVER) as play:
        await first_verdicts(play, bad)

        def is_noticed() -> bool:
            fail_all(bad, **BROKEN[kind])
            return ("worker.quarantined", "bad") in play.types()

        await play.until(is_noticed, "quarantine")
        for _ in range(20):  # nothing goes there any more, however long the other is busy
            await anyio.sleep(0.01)
            assert not fail_all(bad, **BROKEN[kind])
        await play.finish()
    assert {task.state for task in tasks(play)} == {TaskState.DONE}
    wasted = [attempt for attempt in play.attempts() if attempt.outcome is not Outcome.OK]
    assert len(wasted) <= 4
    assert {
        (attempt.host, attempt.failure.blame, attempt.failure.consumes) for attempt in wasted if attempt.failure
    } == {("bad", Blame.WORKER, False)}
    assert {task.consumed for task in tasks(play)} == {1}, "the verdict, and nothing else"
    assert any("host bad is quarantined" in line for line in play.notices)


async def test_a_retry_waits_for_another_host_however_busy_it_is(home: Path):
    bad, good = host("bad", slots=2), host("good")
    async with played(Play(home, 3, bad, good, attempts=2), NEVER) as play:
        await play.launched(bad, 2)
        await play.launched(good)
        first = bad.launched[0]
        bad.end(first, exit_code=1, duration_s=30.0)
        await anyio.sleep(0.2)
        assert len(bad.launched) == 2, "it must not go back to where it failed"
        end_all(good)
        await play.launched(good, 2)
        assert good.launched[1].rsplit(".", 1)[0] == first.rsplit(".", 1)[0]
        await play.finish()
    assert {task.state for task in tasks(play)} == {TaskState.DONE}


async def test_a_slow_failure_is_not_final_while_another_host_serves(home: Path):
    bad, good = host("bad"), host("good")
    async with played(Play(home, 2, bad, good, attempts=1), NEVER) as play:
        await play.launched(bad)
        await play.launched(good)
        bad.end(bad.launched[0], exit_code=1, duration_s=30.0)
        end_all(good)
        await play.launched(good, 2)
        good.end(good.launched[1], exit_code=1, duration_s=30.0)
    failed = next(task for task in tasks(play) if task.state is not TaskState.DONE)
    assert (failed.state, failed.attempts) == (TaskState.FAILED, 2), "two hosts agree, and it is tried no more"


async def test_a_host_that_works_before_and_after_is_believed(home: Path):
    """A failure with `attempts = 1` stays what it is: nobody gets a second chance from a healthy host."""
    one, two = host("one"), host("two")
    async with played(Play(home, 4, one, two, attempts=1), NEVER) as play:
        await first_verdicts(play, one)
        await play.launched(one, 2)
        failing = one.launched[1]
        one.end(failing, exit_code=1, duration_s=30.0)
        await play.launched(one, 3)
        end_all(two)
        await anyio.sleep(0.1)
        assert len(two.launched) == 1, "the next verdict of the first host tells whose fault it was"
        one.end(one.launched[2])
    states = {task.number: task.state for task in tasks(play)}
    number = int(failing.split(".")[-2])
    assert states.pop(number) is TaskState.FAILED
    assert set(states.values()) == {TaskState.DONE}
    assert len(play.attempts()) == 4


async def test_a_verdict_of_an_attempt_that_began_before_proves_nothing(home: Path):
    bad, good = host("bad", slots=2), host("good")
    async with played(Play(home, 5, bad, good, attempts=1), NEVER) as play:
        await play.launched(bad, 2)
        await play.launched(good)
        bad.end(bad.launched[0])
        await play.launched(bad, 3)
        bad.end(bad.launched[2], exit_code=1, duration_s=30.0)
        await play.launched(bad, 4)
        bad.end(bad.launched[1])
        bad.end(bad.launched[3], exit_code=1, duration_s=30.0)
        await play.finish()
    assert {task.state for task in tasks(play)} == {TaskState.DONE}


async def test_the_other_host_goes_and_the_failure_is_final(home: Path):
    one, two = host("one"), host("two")
    async with played(Play(home, 2, one, two, attempts=1), NEVER) as play:
        await play.launched(one)
        await play.launched(two)
        one.end(one.launched[0], exit_code=1, duration_s=30.0)
        await play.until(
            lambda: any(task.attempts == 1 and task.state is TaskState.QUEUED for task in tasks(play)), "it"
        )
        play.fleet.remove("two", "preempted")
        await play.said("worker.left", two)
        await play.finish()
    assert sorted(task.state for task in tasks(play)) == [TaskState.DONE, TaskState.FAILED]


async def test_the_next_controller_knows_who_waits_for_another_host(home: Path):
    one, two = host("one"), host("two")
    play = Play(home, 2, one, two, attempts=1)
    async with anyio.create_task_group() as group:
        group.start_soon(play.drive)
        await play.launched(one)
        await play.launched(two)
        one.end(one.launched[0], exit_code=1, duration_s=30.0)
        await play.until(
            lambda: any(task.attempts == 1 and task.state is TaskState.QUEUED for task in tasks(play)), "it"
        )
        group.cancel_scope.cancel()
    play.store.runs.leave(play.run)
    play.run = take(play.store, play.store.runs.get(play.run.id))
    async with played(play, NEVER):
        await anyio.sleep(0.1)
        assert len(one.launched) == 1, "it must not have another chance where it failed"
        end_all(two)
        await play.launched(two, 2)
        two.end(two.launched[1], exit_code=1, duration_s=30.0)
    assert sorted(task.state for task in tasks(play)) == [TaskState.DONE, TaskState.FAILED]


async def test_a_task_whose_memory_only_one_host_has_ends_there(home: Path):
    large, small = host("large", memory_mb=1000), host("small", memory_mb=10)
    play = Play(home, 1, large, small, attempts=1, memory_mb=500)
    async with played(play, NEVER):
        await play.launched(large)
        large.end(large.launched[0], exit_code=1, duration_s=30.0)
    assert [task.state for task in tasks(play)] == [TaskState.FAILED]


async def test_one_host_alone_retries_and_fails_as_ever(home: Path):
    only = host("only", slots=2)
    async with played(Play(home, 6, only, attempts=2), NEVER) as play:
        while play.ending is None:
            fail_all(only, exit_code=1, duration_s=0.1)
            await anyio.sleep(0.005)
    assert {(task.state, task.attempts) for task in tasks(play)} == {(TaskState.FAILED, 2)}
    assert "worker.quarantined" not in [kind for kind, _ in play.types()]


async def test_tasks_that_fail_everywhere_are_their_own(home: Path):
    """Honest failures: no host is taken out of use for long, and each task fails in the score."""
    hosts = [host(name) for name in ("one", "two", "three")]
    bad_tasks = {3, 4, 5, 6, 7, 8, 9}
    async with played(Play(home, 24, *hosts, attempts=2), NEVER) as play:
        while play.ending is None:
            for backend in hosts:
                for attempt_id, attempt in list(backend.attempts.items()):
                    if attempt.live and int(attempt_id.split(".")[-2]) in bad_tasks:
                        backend.end(attempt_id, exit_code=1, duration_s=0.5)
                    elif attempt.live:
                        backend.end(attempt_id)
            await anyio.sleep(0.005)
    for task in tasks(play):
        assert task.state is (TaskState.FAILED if task.number in bad_tasks else TaskState.DONE)
        assert task.attempts <= 3


async def test_all_hosts_that_fail_alike_keep_serving(home: Path):
    one, two = host("one"), host("two")
    async with played(Play(home, 10, one, two, attempts=1, breaker=False), NEVER) as play:
        while play.ending is None:
            fail_all(one, exit_code=1, duration_s=0.1)
            fail_all(two, exit_code=1, duration_s=0.1)
            await anyio.sleep(0.005)
    assert {task.state for task in tasks(play)} == {TaskState.FAILED}


async def test_a_repaired_host_comes_back_by_a_trial(home: Path):
    bad, good = host("bad", slots=2), host("good")
    async with played(Play(home, 20, bad, good, attempts=1), SOON) as play:
        await first_verdicts(play, bad)

        def is_noticed() -> bool:
            fail_all(bad, exit_code=1, duration_s=0.1)
            return ("worker.quarantined", "bad") in play.types()

        await play.until(is_noticed, "quarantine")
        await play.until(lambda: fail_all(bad, exit_code=1, duration_s=0.1) or bad.canaries, "its canary")
        await play.said("worker.returned", bad)
        await play.until(lambda: any(attempt.live for attempt in bad.attempts.values()), "its trial")
        assert sum(attempt.live for attempt in bad.attempts.values()) == 1, "one at a time"
        bad.end(bad.launched[-1])
        await play.until(lambda: sum(one.live for one in bad.attempts.values()) == 2, "both of its slots")
        await play.finish()
    play.assert_all_ok()


async def test_a_trial_that_fails_costs_the_task_nothing_and_the_third_bars_the_host(home: Path):
    bad, good = host("bad"), host("good")
    async with played(Play(home, 30, bad, good, attempts=1), SOON) as play:
        await first_verdicts(play, bad)

        def is_barred() -> bool:
            fail_all(bad, exit_code=1, duration_s=0.1)
            return sum(kind == "worker.canary_failed" for kind, _ in play.types()) == 3

        await play.until(is_barred, "three trials")
        await play.finish()
    assert {task.state for task in tasks(play)} == {TaskState.DONE}
    failed = [attempt for attempt in play.attempts() if attempt.outcome is not Outcome.OK]
    assert len(failed) <= 6
    assert all(attempt.failure and not attempt.failure.consumes for attempt in failed)


async def test_a_host_that_refuses_a_launch_is_set_apart_at_once_and_the_run_goes_on(home: Path):
    full, good = host("full"), host("good")
    end = {
        "cause": "host_failed",
        "exit_code": None,
        "errno": 28,
        "message": "No space left (host full)",
        "duration_s": 0.0,
    }
    async with played(Play(home, 6, full, good), NEVER) as play:
        await play.launched(full)
        full.end(full.launched[0], **end)
        await play.said("worker.quarantined", full)
        await play.finish()
    play.assert_all_ok()
    assert len(full.launched) == 1
    [attempt] = [one for one in play.attempts() if one.outcome is not Outcome.OK]
    assert attempt.failure is not None
    assert (attempt.failure.kind, attempt.failure.blame) == ("disk_full", "worker")


async def test_fixed_shards_of_a_bad_host_go_to_others_and_lose_nothing(home: Path):
    bad, good = host("bad"), host("good")
    play = Play(home, 12, bad, good, attempts=1, workers=2, distribution=Distribution.ROUND_ROBIN)
    async with played(play, NEVER):
        await first_verdicts(play, bad)

        def is_noticed() -> bool:
            fail_all(bad, exit_code=1, duration_s=0.1)
            return ("worker.quarantined", "bad") in play.types()

        await play.until(is_noticed, "quarantine")
        await play.finish()
    assert {task.state for task in tasks(play)} == {TaskState.DONE}


async def test_probes_of_an_open_breaker_go_to_different_hosts(home: Path):
    hosts = [host(name) for name in ("one", "two", "three")]
    refused = {"cause": "backend_error", "exit_code": None, "message": "it went wrong", "duration_s": 0.0}
    async with played(Play(home, 12, *hosts), NEVER) as play:
        while play.ending is None:
            for backend in hosts:
                fail_all(backend, **refused)
            await anyio.sleep(0.005)
    with opened(home) as reader:
        assert reader.runs.get(play.run.id).state is RunState.PAUSED
    probes = [attempt.host for attempt in sorted(play.attempts(), key=lambda one: one.claimed_at)][-3:]
    assert sorted(probes) == ["one", "three", "two"]


async def test_tasks_whose_guests_disk_is_full_take_no_host_with_them(home: Path):
    """They say `No space left on device` wherever they run: that is theirs in the end, and every host goes on."""
    hosts = [host(name) for name in ("one", "two", "three")]
    full = {2, 3, 4, 5}
    end = {"exit_code": 1, "disk_full": True, "tail": "guest: No space left on device", "duration_s": 2.0}
    async with played(Play(home, 20, *hosts, attempts=1), NEVER) as play:
        while play.ending is None:
            for backend in hosts:
                for attempt_id, attempt in list(backend.attempts.items()):
                    if attempt.live and int(attempt_id.split(".")[-2]) in full:
                        backend.end(attempt_id, **end)
                    elif attempt.live:
                        backend.end(attempt_id)
            await anyio.sleep(0.005)
    states = {task.number: task.state for task in tasks(play)}
    assert all(states[number] is TaskState.DONE for number in states.keys() - full)
    assert all(states[number] in (TaskState.FAILED, TaskState.HELD) for number in full)
    quarantined = [host for kind, host in play.types() if kind == "worker.quarantined"]
    returned = [host for kind, host in play.types() if kind == "worker.returned"]
    assert sorted(map(str, quarantined)) == sorted(map(str, returned))
