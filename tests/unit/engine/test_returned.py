"""What was given up and comes back is counted or ended, never ignored."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import anyio
import pytest
from msgspec.structs import replace
from tests.support.engine_play import PATIENT, QUICK, Play, end_all, host, played, until
from tests.support.fake_backend import FakeBackend, FakeHost

from evalfleet.engine.controller import take
from evalfleet.engine.dispatcher import Dispatcher
from evalfleet.engine.hosts import connection
from evalfleet.engine.orders import Mode
from evalfleet.hosts.base import AttemptEvent, HostInfo
from evalfleet.model import Outcome, RunState, TaskState, Verb
from evalfleet.store.open import open_store

pytestmark = pytest.mark.anyio


async def give_up(play: Play, backend: FakeBackend) -> str:
    """Cut a host off until its attempt is lost; returns the attempt, which goes on."""
    lost = backend.launched[-1]
    backend.unreachable = "no route to host"
    backend.cut()
    await play.said("worker.lost", backend)
    await play.until(lambda: any(one.id == lost and one.outcome for one in play.attempts()), "the loss to be stored")
    return lost


async def come_back(play: Play, backend: FakeBackend) -> None:
    backend.unreachable = None
    await play.said("worker.returned", backend)


# In one run


async def test_it_occupies_its_worker_until_it_ends_and_its_verdict_counts(home: Path):
    a, b = host("a"), host("b")
    play = Play(home, 8, a, b, retry_base_s=30.0)
    async with played(play, QUICK):
        await play.launched(a)
        await play.launched(b)
        lost = await give_up(play, b)
        await come_back(play, b)
        for count in (2, 3, 4):  # there is work, and b is there, but it has one worker
            end_all(a)
            await play.launched(a, count)
        assert b.launched == [lost]
        b.end(lost)
        await play.launched(b, 2)
        await play.finish()
    play.assert_all_ok()
    assert {attempt.id: attempt.outcome for attempt in play.attempts()}[lost] is Outcome.OK


async def test_it_occupies_its_memory(home: Path):
    a = host("a", slots=2, memory_mb=1000)
    play = Play(home, 1, a)
    async with played(play, QUICK):
        await play.launched(a)
        lost = await give_up(play, a)
        dispatcher = play.supervisor._dispatcher if play.supervisor else None
        assert dispatcher is not None
        await come_back(play, a)
        returned = dispatcher.returned
        where, attempt = returned._running[lost]
        assert attempt is not None
        heavy = replace(attempt, requests=replace(attempt.requests, memory_mb=700))
        returned._running[lost] = (where, heavy)
        room = dispatcher._admission._room(replace(a._info), dispatcher.live)
        assert (room.memory_mb, room.free_memory_mb) == (1000, 300)
        await play.finish()


async def test_it_is_ended_once_its_task_has_a_verdict(home: Path):
    a, b = host("a"), host("b")
    play = Play(home, 3, a, b)
    async with played(play, QUICK):
        await play.launched(a)
        await play.launched(b)
        lost = await give_up(play, b)
        while lost.removesuffix(".1") + ".2" not in a.launched:
            count = len(a.launched)
            end_all(a)
            await play.launched(a, count + 1)
        await come_back(play, b)  # its task runs on a, and has no verdict: either may give it
        assert b.attempts[lost].live
        end_all(a)
        await play.until(lambda: lost in b.forgotten, "its end")
        await play.finish()
    play.assert_all_ok()
    assert len([one for one in play.attempts() if one.outcome is Outcome.OK]) == 3


async def test_a_run_is_not_over_while_it_goes_on_where_we_can_end_it(home: Path):
    a, b = host("a"), host("b")
    play = Play(home, 1, a, b)
    async with played(play, QUICK):
        await play.until(lambda: a.launched or b.launched, "a launch")
        first, other = (a, b) if a.launched else (b, a)
        lost = await give_up(play, first)
        await play.launched(other)
        first.unreachable = None  # it comes back at any moment: before the end, or not any more in this run
        await play.said("worker.returned", first)
        end_all(other)
    assert lost not in first.attempts
    play.assert_all_ok()


async def test_a_cancel_ends_it(home: Path):
    a, b = host("a"), host("b")
    play = Play(home, 4, a, b)
    async with played(play, QUICK):
        await play.launched(a)
        await play.launched(b)
        lost = await give_up(play, b)
        await come_back(play, b)
        with closing(open_store(home)) as another:
            another.requests.add(play.run.id, Verb.CANCEL, {}, "somebody")
    assert lost not in b.attempts
    assert a.attempts == {}


async def test_a_host_that_keeps_what_nobody_needs_costs_no_other_attempt(home: Path, monkeypatch: pytest.MonkeyPatch):
    """Its runner names an attempt, has no files of it, and refuses to forget it."""
    a = host("a")
    play = Play(home, 1, a)
    ghost = f"{play.run.id}.1.9"
    a.attempts[ghost] = replace_attempt(a, play.run.id)
    observe = FakeHost.observe

    async def without(self: FakeHost, attempt_id: str, after: int) -> bool:
        return attempt_id != ghost and await observe(self, attempt_id, after)

    monkeypatch.setattr(FakeHost, "observe", without)
    a.forgets = False
    async with played(play):
        await play.launched(a)
        a.end(a.launched[0])
    play.assert_all_ok()


def replace_attempt(backend: FakeBackend, run_id: str):
    from tests.support.fake_backend import FakeAttempt

    return FakeAttempt(run_id, "sleep", live=False)


# Runs that are over


async def test_whoever_meets_the_host_later_ends_what_a_cancelled_run_left_there(home: Path):
    b = host("b", slots=2)
    one = Play(home, 1, b)
    async with played(one, QUICK):
        await one.launched(b)
        lost = await give_up(one, b)
        with closing(open_store(home)) as another:
            another.requests.add(one.run.id, Verb.CANCEL, {}, "somebody")
    with closing(open_store(home)) as store:
        assert store.runs.get(one.run.id).state is RunState.CANCELLED
    assert b.attempts[lost].live
    b.unreachable = None
    two = Play(home, 1, b)
    two.store.runs.leave(one.run)
    # of another home, and of a run that nobody drives now but that is not over: not ours to end
    b.attempts["elsewhere.1.1"] = b.attempts[lost].__class__("elsewhere", "sleep")
    with closing(open_store(home)) as store:
        waiting = store.runs.submit(
            "y", two.run.policy, [next(store.tasks.all(two.run.id)).spec], folder="/", base_env={}
        )
    b.attempts[f"{waiting.id}.1.1"] = b.attempts[lost].__class__(waiting.id, "sleep")
    async with played(two, QUICK):
        await two.launched(b, 2)
        await two.until(lambda: lost in b.forgotten, "the end of what was left")
        assert b.attempts["elsewhere.1.1"].live
        assert b.attempts[f"{waiting.id}.1.1"].live
        b.end(b.launched[-1])
    two.assert_all_ok()


async def test_a_verdict_that_nobody_brought_stays_where_it_is(home: Path):
    """The run is over, the task has no verdict: `retry` of that run finds this one."""
    b = host("b", slots=2)
    one = Play(home, 1, b, max_lost=1)
    async with played(one, QUICK):
        await one.launched(b)
        lost = await give_up(one, b)
    with closing(open_store(home)) as store:
        assert store.runs.get(one.run.id).state is RunState.COMPLETED
        assert [task.state for task in store.tasks.all(one.run.id)] == [TaskState.HELD]
    b.end(lost)
    b.unreachable = None
    two = Play(home, 1, b)
    async with played(two, QUICK):
        await two.launched(b, 2)
        acquired = b.acquired
        b.cut()
        await two.until(lambda: b.acquired > acquired, "another look at the host")
        b.end(b.launched[-1])
    assert lost in b.attempts


# Attempts that were never delivered


def dispatcher_of(play: Play) -> Dispatcher:
    from random import Random

    from evalfleet.engine.placement.workers import WorkerTable

    run = play.run
    made = Dispatcher(play.store, run, PATIENT, lambda _: {}, Random(1), WorkerTable(8, [("a", 1), ("b", 1)]))
    made.start()
    return made


def ended(attempt_id: str, **end: object) -> AttemptEvent:
    return AttemptEvent(attempt_id, 9, 0.0, "ended", {"exit_code": 0, "duration_s": 1.0, **end})


async def undelivered(play: Play) -> tuple[Dispatcher, str, str]:
    """Attempt 1 is lost, attempt 2 is claimed and on its way."""
    a, b = (HostInfo(name=name, memory_mb=None, gpus=0, price_usd_per_hour=0.0) for name in "ab")
    made = dispatcher_of(play)
    (first,) = made.step([], [a]).launch["a"]
    made.step([ended(first.attempt_id, cause="worker_lost", exit_code=None)], [])
    second: list[str] = []
    with anyio.fail_after(30):
        while not second:
            second = [one.attempt_id for one in made.step([], [b]).launch.get("b", [])]
            await anyio.sleep(0.005)
    return made, first.attempt_id, second[0]


@pytest.mark.parametrize("again", [False, True])
async def test_a_finished_task_is_never_launched_again(home: Path, again: bool):
    """Neither by the controller that saw the late verdict, nor by the next."""
    a, b = host("a"), host("b")
    play = Play(home, 1, a, b)
    made, first, second = await undelivered(play)
    made.step([ended(first, cause="exited")], [])
    assert [task.state for task in play.store.tasks.all(play.run.id)] == [TaskState.DONE]
    if not again:
        assert made.relaunch(second) is None
        play.store.close()
        return
    play.store.runs.leave(play.run)
    play.run = take(play.store, play.store.runs.get(play.run.id))
    async with played(play):
        await until(lambda: play.ending is not None, "the end")
    assert b.launched == []
    play.assert_all_ok()
    assert [attempt.outcome for attempt in play.attempts()] == [Outcome.OK, Outcome.CANCELLED]


@pytest.mark.parametrize("mode", [Mode.CANCEL, Mode.WITHDRAW])
async def test_a_task_of_a_cancelled_run_is_never_launched_again(home: Path, mode: Mode):
    play = Play(home, 1, host("a"), host("b"))
    made, _, second = await undelivered(play)
    assert made.relaunch(second) is not None
    made.mode = mode
    assert made.relaunch(second) is None
    play.store.close()


@pytest.mark.parametrize("is_new", [True, False])
async def test_an_attempt_is_not_launched_again_on_a_machine_that_is_newer(
    home: Path, is_new: bool, monkeypatch: pytest.MonkeyPatch
):
    """The one that had its name before may have run it: news are stored a moment later than they come."""
    monkeypatch.setattr(connection, "_NEWER_S", 0.0)
    a, b = host("a"), host("b")
    play = Play(home, 1, a, b)
    _, _, second = await undelivered(play)
    play.store.runs.leave(play.run)
    play.run = take(play.store, play.store.runs.get(play.run.id))
    a.age_s = b.age_s = 0.0 if is_new else 1000.0
    async with played(play):
        await play.until(lambda: a.launched or b.launched, "a launch")
        await play.finish()
    assert (second in b.launched) is not is_new
    play.assert_all_ok()
    outcomes = [attempt.outcome for attempt in play.attempts()]
    assert outcomes == [Outcome.LOST, *([Outcome.LOST] if is_new else []), Outcome.OK]
