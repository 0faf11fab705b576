"""Runs that share GPUs: hand-over between controllers, turns, and what is known of a card after an attempt on it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median
from typing import Any

import anyio
import pytest
from msgspec.structs import replace
from tests.support.engine_play import PATIENT, end_all, until
from tests.support.fake_backend import FakeBackend

from evalfleet.answers.gpus import GpuList
from evalfleet.core.gpus.cards import Card
from evalfleet.engine.controller import take
from evalfleet.engine.supervisor import Ending, Supervisor
from evalfleet.hosts.base import FixedFleet
from evalfleet.layout import Home
from evalfleet.model import Attempt, Kind, Outcome, PauseCause, Policy, Requests, Run, TaskSpec, TaskState
from evalfleet.report.gpus import gpus_facts
from evalfleet.store.open import open_reader, open_store
from evalfleet.store.store import Store

pytestmark = pytest.mark.anyio


def card(index: int, **more: Any) -> Card:
    seen = Card(host="fake", index=index, uuid=f"G{index}", memory_mb=80_000, used_mb=0, utilization=0, processes=())
    return replace(seen, **more)


class Shared:
    """A machine with GPUs, and controllers that share it, each with a connection of its own to the store."""

    until = staticmethod(until)

    def __init__(self, home: Path, *cards: Card) -> None:
        self.home = home
        self.backend = FakeBackend()
        self.backend.gpus = cards
        self.stores: list[Store] = []
        self.supervisors: dict[str, Supervisor] = {}
        self.endings: dict[str, Ending] = {}
        self.group = anyio.create_task_group()

    def begin(self, *gpus: int, memory_mb: int = 0, program: str = "sleep", **policy: Any) -> Run:
        """Drive a run whose tasks ask for so many GPUs each."""
        store = open_store(self.home)
        self.stores.append(store)
        requests = [Requests(gpus=count, gpu_memory_mb=memory_mb) for count in gpus]
        specs = [
            TaskSpec(key=f"t_{n}", domain="t", command=(program,), requests=asked) for n, asked in enumerate(requests)
        ]
        wanted = Policy(**{"workers": 4, "retry_base_s": 0.01, **policy})
        run = take(store, store.runs.submit("x", wanted, specs, folder="/", base_env={}))
        self.group.start_soon(self._drive, store, run)
        return run

    async def _drive(self, store: Store, run: Run) -> None:
        supervisor = Supervisor(
            store=store, home=Home(self.home), fleet=FixedFleet([self.backend]), run=run, settings=PATIENT,
            secrets=lambda _: {},
        )  # fmt: skip
        self.supervisors[run.id] = supervisor
        self.endings[run.id] = await supervisor.drive()

    async def launched(self, count: int) -> None:
        await self.until(lambda: len(self.backend.launched) >= count, f"{count} launches")

    async def waiting(self, runs: set[str]) -> None:
        await self.until(lambda: {one.run for one in self.facts().waiting} == runs, "these to wait")

    async def finish(self) -> None:
        """End whatever runs until all runs are over."""
        with anyio.fail_after(20):
            while len(self.endings) < len(self.stores):
                end_all(self.backend)
                await anyio.sleep(0.005)

    def read(self, ask: Callable[[Any], Any]) -> Any:
        reader = open_reader(self.home)
        assert reader is not None
        try:
            return ask(reader)
        finally:
            reader.close()

    def facts(self) -> GpuList:
        return self.read(gpus_facts)

    def attempts(self, run: Run) -> list[Attempt]:
        return self.read(lambda store: store.attempts.all(run.id))

    def events(self) -> list[Any]:
        return self.read(lambda store: store.events.all(0, 10_000))


@asynccontextmanager
async def shared(home: Path, *cards: Card) -> AsyncIterator[Shared]:
    one = Shared(home, *cards)
    async with one.group:
        yield one
        one.group.cancel_scope.cancel()
    for store in one.stores:
        store.close()


async def test_runs_take_turns_and_hand_over_within_50_ms(tmp_path: Path):
    told: list[list[float]] = []
    for place in range(3):  # measured again where the machine was busy with something else
        async with shared(tmp_path / str(place), card(0)) as box:
            box.begin(1)
            await box.launched(1)
            many, few = box.begin(*[1] * 8), box.begin(*[1] * 3)
            await box.waiting({many.id, few.id})
            await box.finish()
            events = [one for one in box.events() if one.type in ("attempt.claimed", "attempt.finished")]
        order = [one.run_id for one in events if one.type == "attempt.claimed"]
        assert len(order) == 12
        # Each has every second turn, however many wait behind it in its own run.
        both = order[order.index(few.id) : len(order) - order[::-1].index(few.id)]
        assert both == [few.id, many.id, few.id, many.id, few.id]
        ends = [(one.at, one.run_id) for one in events if one.type == "attempt.finished"]
        claims = [(one.at, one.run_id) for one in events if one.type == "attempt.claimed"][1:]
        waits = [then - at for (at, who), (then, other) in zip(ends, claims, strict=False) if who != other]
        assert len(waits) >= 4
        told.append(waits)
        if median(waits) < 0.05:
            return
    raise AssertionError([(median(waits), max(waits)) for waits in told])


async def test_a_run_that_asks_for_no_gpus_asks_nobody_about_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    asked: list[str] = []
    async with shared(tmp_path) as box:
        run = box.begin(*[0] * 20, program="true")
        database = box.stores[0].database
        rows = database.rows
        monkeypatch.setattr(database, "rows", lambda name, **values: (asked.append(name), rows(name, **values))[1])
        await box.finish()
        assert box.read(lambda store: store.tasks.counts(run.id))[TaskState.DONE] == 20
    assert "claim_task" in asked
    assert [name for name in asked if "gpu" in name] == []


async def test_a_card_that_was_taken_costs_nothing_and_is_avoided(tmp_path: Path):
    async with shared(tmp_path, card(0), card(1)) as box:
        run = box.begin(1)
        await box.launched(1)
        box.backend.end(box.backend.launched[0], cause="gpu_taken", message="GPU 0 is taken by process 7")
        await box.launched(2)
        await box.finish()
        first, second = box.attempts(run)
        assert (first.outcome, first.failure and first.failure.kind) == (Outcome.INFRA_ERROR, Kind.GPU_TAKEN)
        assert [device.uuid for one in (first, second) for device in one.devices] == ["G0", "G1"]
        task = box.read(lambda store: store.tasks.get(run.id, "t_0"))
        assert (task.state, task.consumed) == (TaskState.DONE, 1)


async def test_a_card_that_is_left_dirty_is_nobodys_until_a_person_says_so(tmp_path: Path):
    async with shared(tmp_path, card(0)) as box:
        run = box.begin(1, 1)
        await box.launched(1)
        box.backend.gpus = (card(0, used_mb=9_000, foreign=(7,)),)
        dirty = [{"uuid": "G0", "index": 0, "reason": "its memory did not come back", "pids": [7]}]
        box.backend.end(box.backend.launched[0], gpus_dirty=dirty)
        await box.until(lambda: box.facts().gpus[0].quarantine, "the quarantine")
        quarantine = box.facts().gpus[0].quarantine
        assert quarantine is not None
        assert quarantine.reason == "its memory did not come back (process 7)"
        await box.until(lambda: box.facts().waiting, "the other task to wait")
        assert len(box.backend.launched) == 1
        box.backend.gpus = (card(0),)
        await box.until(lambda: not box.facts().gpus[0].foreign, "a look that is clean")
        assert len(box.backend.launched) == 1  # for 30 s that is not enough
        store = open_store(tmp_path)
        store.gpus.unquarantine("fake", "G0", "Ada")
        store.close()
        await box.launched(2)
        await box.finish()
        assert [one.type for one in box.events() if one.type.startswith("gpu.")] == [
            "gpu.quarantined",
            "gpu.unquarantined",
        ]
        assert {one.outcome for one in box.attempts(run)} == {Outcome.OK}


async def test_tasks_share_a_card_by_memory(tmp_path: Path):
    async with shared(tmp_path, card(0)) as box:
        run = box.begin(1, 1, 1, memory_mb=30_000)
        await box.launched(2)
        await box.until(lambda: len(box.facts().waiting) == 1, "the third to wait")
        assert [one.memory_mb for one in box.facts().gpus[0].holders] == [30_000, 30_000]
        assert [one.key for one in box.facts().gpus[0].holders] == ["t_0", "t_1"]
        await box.finish()
        assert {one.requests.gpu_memory_mb for one in box.attempts(run)} == {30_000}


async def test_only_the_gpus_of_the_policy_and_what_is_not_there_is_said_at_once(tmp_path: Path):
    async with shared(tmp_path, card(0), card(1), card(2)) as box:
        run = box.begin(1, 2, gpus=(2,), breaker=False)
        await box.launched(1)
        held = box.read(lambda store: store.tasks.held(run.id, 5))
        assert held == [
            {"key": "t_1", "reason": "asks for 2 GPUs; no host has that much among its GPUs 2: the most is 1"}
        ]
        await box.finish()
        assert [device.index for one in box.attempts(run) for device in one.devices] == [2]


async def test_a_run_that_admits_nothing_leaves_the_queue(tmp_path: Path):
    async with shared(tmp_path, card(0), card(1)) as box:
        holding = box.begin(1, workers=1)
        await box.launched(1)
        waiting = box.begin(2, 2)
        await box.until(lambda: len(box.facts().waiting) == 2, "both to wait")
        third = box.begin(2)
        await box.until(lambda: len(box.facts().waiting) == 3, "the third to wait")
        positions = [(one.run, one.position) for one in box.facts().waiting]
        assert positions == [(waiting.id, 1), (third.id, 2), (waiting.id, 3)]
        dispatcher = box.supervisors[waiting.id]._dispatcher  # pyright: ignore[reportPrivateUsage]
        dispatcher.pause(PauseCause.OPERATOR, "enough")
        await box.until(lambda: [one.run for one in box.facts().waiting] == [third.id], "it to leave")
        box.backend.end(box.backend.launched[0])
        await box.launched(2)
        assert [one.run_id for one in box.attempts(third)] == [third.id]
        end_all(box.backend)
        await box.until(lambda: {holding.id, third.id} <= box.endings.keys(), "both to end")
