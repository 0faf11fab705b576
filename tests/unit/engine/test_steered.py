"""What people ask of a run holds, whoever drives it, and is answered truthfully."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from random import Random

import anyio
import pytest
from tests.support.engine_play import PATIENT, Play, host, opened, played, until

from evalfleet.engine.controller import take
from evalfleet.engine.dispatcher import Dispatcher
from evalfleet.engine.placement.workers import WorkerTable
from evalfleet.hosts.base import AttemptEvent, HostInfo
from evalfleet.model import RunState, TaskState, Verb
from evalfleet.store.open import open_store

pytestmark = pytest.mark.anyio

HERE = HostInfo(name="a", memory_mb=None, gpus=0, price_usd_per_hour=0.0)


async def ask(home: Path, run_id: str, verb: Verb) -> dict[str, object]:
    with closing(open_store(home)) as store:
        number = store.requests.add(run_id, verb, {}, "somebody")
        await until(lambda: store.requests.answer(number) is not None, "an answer")
        return store.requests.answer(number) or {}


async def killed_while_it_pauses(play: Play) -> None:
    """Its controller is asked to pause, and dies before its live attempt has ended."""
    async with anyio.create_task_group() as group:
        group.start_soon(play.drive)
        await play.launched(play.hosts[0])
        assert await ask(play.home, play.run.id, Verb.PAUSE) == {"pausing": 1}
        group.cancel_scope.cancel()
    play.store.runs.leave(play.run)


async def test_a_pause_outlives_the_controller_that_was_asked(home: Path):
    a = host("a")
    play = Play(home, 3, a)
    await killed_while_it_pauses(play)
    play.run = take(play.store, play.store.runs.get(play.run.id), stays_paused=True)
    async with played(play):
        a.end(a.launched[0])
    assert len(a.launched) == 1
    with opened(home) as reader:
        run = reader.runs.get(play.run.id)
        assert (run.state, (run.reason or {})["cause"]) == (RunState.PAUSED, "operator")


async def test_who_resumes_by_hand_takes_the_pause_back(home: Path):
    play = Play(home, 3, host("a"))
    await killed_while_it_pauses(play)
    play.run = take(play.store, play.store.runs.get(play.run.id))
    async with played(play):
        await play.finish()
    play.assert_all_ok()


async def test_a_pause_that_was_taken_back_is_not_remembered(home: Path):
    a = host("a")
    async with played(Play(home, 2, a)) as play:
        await play.launched(a)
        await ask(home, play.run.id, Verb.PAUSE)
        await ask(home, play.run.id, Verb.RESUME)
        with opened(home) as reader:
            assert reader.runs.get(play.run.id).pausing is None
        await play.finish()
    play.assert_all_ok()


@pytest.mark.parametrize("verb", [Verb.RETRY, Verb.PAUSE, Verb.RESUME, Verb.HOLD, Verb.RELEASE])
def test_what_a_cancel_would_undo_is_refused_while_it_goes_on(home: Path, verb: Verb):
    """Answered as if it were done, it would be a lie: the tasks are cancelled all the same."""
    play = Play(home, 2, host("a"), attempts=1)
    store, run = play.store, play.run
    made = Dispatcher(store, run, PATIENT, lambda _: {}, Random(1), WorkerTable(8, [("a", 2)]))
    made.start()
    first, _ = made.step([], [HERE]).launch["a"]
    end = {"cause": "exited", "exit_code": 1, "duration_s": 1.0}
    made.step([AttemptEvent(first.attempt_id, 9, 0.0, "ended", end)], [])
    assert next(store.tasks.all(run.id)).state is TaskState.FAILED
    store.requests.add(run.id, Verb.CANCEL, {}, "somebody")
    number = store.requests.add(run.id, verb, {"keys": ["t_1"]}, "somebody")
    for request in store.requests.pending(run.id):
        assert made.obey(request)
    answer = store.requests.answer(number) or {}
    assert "is being cancelled" in answer["error"]
    assert store.runs.get(run.id).cancelling
    assert [task.state for task in store.tasks.all(run.id)] == [TaskState.FAILED, TaskState.RUNNING]
    store.close()
