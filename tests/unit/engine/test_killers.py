"""A task that kills its runner is found by running it alone; its neighbours lose nothing by it."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest
from tests.support.engine_play import PATIENT, Play, host, opened, played
from tests.support.fake_backend import FakeBackend

from evalfleet.model import Task, TaskState

pytestmark = pytest.mark.anyio


def number_of(attempt_id: str) -> int:
    return int(attempt_id.split(".")[-2])


def live(backend: FakeBackend) -> list[str]:
    return [one for one, attempt in backend.attempts.items() if attempt.live]


def tasks(play: Play) -> dict[int, Task]:
    with opened(play.home) as reader:
        return {task.number: task for task in reader.tasks.all(play.run.id)}


@pytest.mark.parametrize("killers", [{2}, {1, 4}])
async def test_good_tasks_beside_a_killer_are_never_held(home: Path, killers: set[int]):
    """Whoever is on the host when a killer is started there is lost; a good task ends only if it is left alone for a moment."""
    only = host("only", slots=4)
    together: list[set[int]] = []
    async with played(Play(home, 10, only, workers=4), PATIENT) as play:
        while play.ending is None:
            running = {number_of(one) for one in live(only)}
            if running & killers:
                together.append(running)
                only.lose_runner()
            else:
                for one in live(only):
                    only.end(one)
            await anyio.sleep(0.01)
    found = tasks(play)
    assert {number for number, task in found.items() if task.state is TaskState.HELD} == killers
    assert all(found[number].state is TaskState.DONE for number in found.keys() - killers)
    assert max(task.lost for number, task in found.items() if number not in killers) <= 2
    for number in killers:
        assert found[number].lost == 5
        assert together.count({number}) >= 3, "it was alone when it was found"


async def test_a_task_that_runs_alone_closes_its_host_only(home: Path):
    one, two = host("one", slots=2), host("two", slots=2)
    async with played(Play(home, 8, one, two, workers=4), PATIENT) as play:
        for _ in range(2):
            await play.until(lambda: len(live(one)) == 2 and len(live(two)) == 2, "work on both")
            one.lose_runner()
            two.lose_runner()
            await play.until(lambda: not live(one) and not live(two), "their end")

        def is_over() -> bool:
            for backend in (one, two):
                running = {number_of(attempt) for attempt in live(backend)}
                alone = {number for number in running if tasks(play)[number].lost >= 2}
                assert not alone or len(running) == 1, "nothing else is on its host"
                for attempt in live(backend):
                    backend.end(attempt)
            return play.ending is not None

        await play.until(is_over, "the end")
    assert {task.state for task in tasks(play).values()} == {TaskState.DONE}
