"""Hosts come, go, break, return and are taken away in any order, and controllers are replaced: every task gets exactly one verdict.

`FLEET_EXAMPLES=2000 pytest tests/unit/engine/test_fleet_random.py` for a long round with fresh examples.
"""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from pathlib import Path

import anyio
import hypothesis
from anyio.abc import TaskGroup, TaskStatus
from hypothesis import strategies as st
from tests.support.engine_play import QUICK, Play, end_all, host
from tests.support.fake_backend import FakeBackend

from evalfleet.core.hosts.health import OtherWay
from evalfleet.engine.controller import take
from evalfleet.hosts.base import CanarySpec
from evalfleet.model import AttemptState, Outcome, RunState, TaskState

MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
LONG = int(os.environ.get("FLEET_EXAMPLES", "0"))
NAMES = ("h0", "h1", "h2")
TASKS = 6

COMINGS = ("add", "add_anew", "preempt", "lose", "hide", "restart", "wait")
HARMS = ("cut", "vanish", "evict", "return", "preempt", "silence", "kill_runner", "end", "end", "fail", "infra")
ACTIONS = st.sampled_from(COMINGS + HARMS)


class Chaos:
    """Does what a list of words says to the hosts of a run."""

    def __init__(self, play: Play) -> None:
        self.play = play
        self.ever: list[FakeBackend] = []
        self.fleet: dict[str, FakeBackend] = {}
        self.left: dict[str, FakeBackend] = {}
        self._group: TaskGroup | None = None

    def add(self, name: str, *, anew: bool) -> None:
        if name in self.fleet:
            return
        backend = None if anew else self.left.get(name)
        if backend is None:
            backend = host(name, slots=2, canary=CanarySpec() if anew else None)
            self.ever.append(backend)
        self.fleet[name] = backend
        self.play.add(backend)

    def remove(self, name: str, cause: str | None) -> None:
        if name in self.fleet:
            self.left[name] = self.fleet.pop(name)
            self.play.fleet.remove(name, cause)  # pyright: ignore[reportArgumentType]

    async def do(self, action: str, name: str) -> None:
        match action:
            case "add" | "add_anew":
                self.add(name, anew=action == "add_anew")
            case "preempt" | "lose" | "hide":
                self.remove(name, {"preempt": "preempted", "lose": "worker_lost", "hide": None}[action])
            case "wait":
                await anyio.sleep(0.02)
            case "restart":
                await self.restart()
            case _ if name in self.fleet:
                self._harm(action, self.fleet[name])
            case _:
                pass
        await anyio.sleep(0.002)

    def _harm(self, action: str, backend: FakeBackend) -> None:
        live = [one for one, attempt in backend.attempts.items() if attempt.live]
        match action:
            case "cut":
                backend.cut()
            case "vanish" | "evict":
                backend.unreachable = "no route to host"
                backend.other_way = OtherWay.EVICTED if action == "evict" else OtherWay.SILENT
                backend.cut()
            case "return":
                backend.unreachable, backend.silent, backend.other_way = None, False, OtherWay.SILENT
            case "preempt":
                backend.preempt()
            case "silence":
                backend.silent = True
            case "kill_runner":
                backend.lose_runner()
            case "end" if live:
                backend.end(live[0])
            case "fail" if live:
                backend.end(live[0], exit_code=1)
            case "infra" if live:
                backend.end(live[0], cause="start_timeout", exit_code=None)
            case _:
                pass

    async def start(self, group: TaskGroup) -> None:
        self._group = group
        await group.start(self._drive)

    async def _drive(self, *, task_status: TaskStatus[None]) -> None:
        over = self._over = anyio.Event()
        with anyio.CancelScope() as self._scope:
            task_status.started()
            await self.play.drive()
        over.set()

    async def restart(self) -> None:
        """The controller is gone at whatever it was doing, and another one takes the run."""
        play = self.play
        if play.ending is not None or self._group is None:
            return
        self._scope.cancel()
        await self._over.wait()  # the store is used by one controller at a time
        if play.ending is None:
            play.store.runs.leave(play.run)
            play.run = take(play.store, play.store.runs.get(play.run.id))
            await self._group.start(self._drive)

    async def end_well(self) -> None:
        """From now on everything works."""
        for name in NAMES:
            self.play.fleet.decide(name, "worker_lost") if name not in self.fleet else None
        for backend in self.ever:
            backend.unreachable, backend.silent, backend.preemption_line = None, False, None
        self.add("last", anew=False)
        with anyio.move_on_after(30) as scope:
            while self.play.ending is None:
                for backend in self.ever:
                    end_all(backend)
                await anyio.sleep(0.005)
        assert not scope.cancelled_caught, "\n".join(
            f"{e.type} {e.task} {e.attempt} {e.data}" for e in self.play.events()[-60:]
        )


async def played(home: Path, script: list[tuple[str, str]]) -> Chaos:
    play = Play(home, TASKS, attempts=1000, max_lost=1000, breaker=False, workers=4)
    play.settings = QUICK
    chaos = Chaos(play)
    async with anyio.create_task_group() as group:
        await chaos.start(group)
        for action, name in script:
            await chaos.do(action, name)
        await chaos.end_well()
    return chaos


@hypothesis.settings(
    max_examples=LONG or 25, derandomize=not LONG, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
@hypothesis.given(script=st.lists(st.tuples(ACTIONS, st.sampled_from(NAMES)), min_size=5, max_size=40))
def test_every_task_gets_exactly_one_verdict(script: list[tuple[str, str]]):
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        chaos = anyio.run(played, Path(folder) / "home", [("add", "h0"), *script])
        play = chaos.play
        run, tasks = play.store.runs.get(play.run.id), list(play.store.tasks.all(play.run.id))
        attempts = play.store.attempts.all(play.run.id)
        play.store.close()
        assert run.state is RunState.COMPLETED
        assert [task.state for task in tasks] == [TaskState.DONE] * TASKS
        verdicts = Counter(event.task for event in play.events() if event.type == "task.done")
        assert verdicts == Counter(task.key for task in tasks), "each task is counted once"
        assert all(attempt.outcome is not None for attempt in attempts), "no attempt is forgotten"
        assert all(attempt.state is AttemptState.ENDED for attempt in attempts)
        stored = {attempt.id for attempt in attempts}
        launched = [one for backend in chaos.ever for one in backend.launched]
        assert stored >= set(launched), "nothing runs that is not stored"
        assert len(launched) == len(set(launched)) or "add_anew" in {action for action, _ in script}
        free = (Outcome.LOST, Outcome.PREEMPTED)
        for task in tasks:
            mine = [attempt for attempt in attempts if attempt.task_number == task.number]
            consumed = [one for one in mine if one.failure is not None and one.failure.consumes]
            assert task.consumed == len(consumed) + 1, "what was lost or taken away is not counted against the task"
            assert not [one for one in consumed if one.outcome in free]
