"""The engine with several hosts, any of which may fail."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from tests.support.engine_play import PATIENT, QUICK, Watched, end_all, host
from tests.support.fake_backend import FakeBackend

from evalfleet.core.hosts.health import OtherWay
from evalfleet.engine.controller import take
from evalfleet.engine.placement.workers import WorkerTable, host_of
from evalfleet.engine.settings import EngineSettings
from evalfleet.engine.supervisor import Ending, Supervisor
from evalfleet.hosts.base import FixedFleet
from evalfleet.layout import Home
from evalfleet.model import Distribution, Kind, Outcome, Policy, RunState, TaskSpec
from evalfleet.store.open import open_store

pytestmark = pytest.mark.anyio


class Fleet(Watched):
    """Hosts a, b, c with one slot each, and a run of tasks that end when a test says so."""

    def __init__(self, home: Path, tasks: int, hosts: str, **policy: object) -> None:
        self.home = home
        self.store = open_store(home)
        specs = [TaskSpec(key=f"t_{number}", domain="t", command=("sleep",)) for number in range(1, tasks + 1)]
        wanted = Policy(**{"workers": 8, "retry_base_s": 0.01, **policy})  # pyright: ignore[reportArgumentType]
        submitted = self.store.runs.submit("x", wanted, specs, folder="/", base_env={})
        self.run = take(self.store, submitted)
        self.hosts = {name: host(name) for name in hosts}
        self.settings = PATIENT
        self.ending: Ending | None = None

    def __getitem__(self, name: str) -> FakeBackend:
        return self.hosts[name]

    async def drive(self) -> None:
        supervisor = Supervisor(
            store=self.store,
            home=Home(self.home),
            fleet=FixedFleet(list(self.hosts.values())),
            run=self.run,
            settings=self.settings,
            secrets=lambda _: {},
        )
        self.ending = await supervisor.drive()

    async def launched(self, **counts: int) -> None:
        for name, count in counts.items():
            host = self[name]
            await self.until(lambda h=host, c=count: len(h.launched) >= c, f"{count} launches on {name}")

    def end_all(self, *names: str) -> None:
        for name in names or self.hosts:
            end_all(self[name])

    async def finish(self) -> None:
        """End whatever runs until the run is over."""
        with anyio.fail_after(20):
            while self.ending is None:
                self.end_all()
                await anyio.sleep(0.005)


@asynccontextmanager
async def driven(
    home: Path, tasks: int, hosts: str = "abc", *, settings: EngineSettings = PATIENT, **policy: object
) -> AsyncIterator[Fleet]:
    fleet = Fleet(home, tasks, hosts, **policy)
    fleet.settings = settings
    async with anyio.create_task_group() as group:
        group.start_soon(fleet.drive)
        yield fleet
        await fleet.until(lambda: fleet.ending is not None, "the end")
    fleet.store.close()


async def test_the_hosts_share_the_work(home: Path):
    async with driven(home, 9) as fleet:
        await fleet.launched(a=1, b=1, c=1)
        assert all(len(host.launched) == 1 for host in fleet.hosts.values())
        await fleet.finish()
    assert {attempt.worker for attempt in fleet.attempts()} == {"a-1", "b-1", "c-1"}
    assert all(attempt.outcome is Outcome.OK for attempt in fleet.attempts())
    assert all(len(host.forgotten) == len(host.launched) for host in fleet.hosts.values())


async def test_a_run_takes_no_more_workers_than_it_asked_for(home: Path):
    async with driven(home, 6, workers=2) as fleet:
        await fleet.until(lambda: sum(len(host.launched) for host in fleet.hosts.values()) == 2, "two launches")
        await anyio.sleep(0.1)
        assert sum(len(host.launched) for host in fleet.hosts.values()) == 2
        await fleet.finish()


async def test_a_host_that_cannot_be_reached_is_done_without(home: Path):
    fleet = Fleet(home, 4, "abc")
    fleet["b"].unreachable = "no route to host"
    async with anyio.create_task_group() as group:
        group.start_soon(fleet.drive)
        await fleet.launched(a=1, c=1)
        await fleet.finish()
    assert fleet.store.runs.get(fleet.run.id).state is RunState.COMPLETED
    assert {attempt.host for attempt in fleet.attempts()} == {"a", "c"}
    fleet.store.close()


async def test_a_host_that_is_lost_loses_its_attempts_and_no_earlier(home: Path):
    async with driven(home, 2, "ab", settings=QUICK, attempts=1) as fleet:
        await fleet.launched(a=1, b=1)
        begun = anyio.current_time()
        fleet["b"].unreachable = "no route to host"
        fleet["b"].cut()
        await fleet.until(lambda: ("worker.suspected", "b") in fleet.types(), "suspicion")
        fleet.end_all("a")
        await fleet.launched(a=2)  # the task of b
        assert anyio.current_time() - begun >= QUICK.patience.give_up_s
        fleet.end_all("a")
    first, second = [attempt for attempt in fleet.attempts() if attempt.task_number == 2 or attempt.host == "b"][:2]
    assert first.failure is not None
    assert (first.outcome, first.failure.kind, first.failure.consumes) == (Outcome.LOST, Kind.WORKER_LOST, False)
    assert (second.host, second.outcome) == ("a", Outcome.OK)
    assert ("worker.lost", "b") in fleet.types()


async def test_a_host_that_blinks_keeps_its_attempts(home: Path):
    async with driven(home, 2, "ab") as fleet:
        await fleet.launched(a=1, b=1)
        fleet["b"].unreachable = "no route to host"
        fleet["b"].cut()
        await fleet.until(lambda: ("worker.suspected", "b") in fleet.types(), "suspicion")
        fleet["b"].unreachable = None
        await fleet.until(lambda: ("worker.returned", "b") in fleet.types(), "its return")
        await fleet.finish()
    assert [attempt.outcome for attempt in fleet.attempts()] == [Outcome.OK, Outcome.OK]
    assert len(fleet["b"].launched) == 1


async def test_a_host_that_the_other_way_says_is_alive_is_never_given_up(home: Path):
    async with driven(home, 2, "ab", settings=QUICK) as fleet:
        await fleet.launched(a=1, b=1)
        fleet["b"].other_way = OtherWay.ALIVE
        fleet["b"].unreachable = "connection refused"
        fleet["b"].cut()
        fleet.end_all("a")
        await anyio.sleep(4 * QUICK.patience.give_up_s)
        assert ("worker.lost", "b") not in fleet.types()
        fleet["b"].unreachable = None
        await fleet.finish()
    assert len(fleet.attempts()) == 2


async def test_the_verdict_of_a_partitioned_host_counts_when_it_returns_first(home: Path):
    async with driven(home, 2, "ab", settings=QUICK) as fleet:
        await fleet.launched(a=1, b=1)
        lost = fleet["b"].launched[0]
        fleet["b"].unreachable = "no route to host"
        fleet["b"].cut()
        fleet.end_all("a")
        await fleet.launched(a=2)  # the replacement runs
        fleet["b"].end(lost)
        fleet["b"].unreachable = None
        await fleet.until(lambda: not fleet["a"].attempts, "the replacement to be ended")
    outcomes = {attempt.id: attempt.outcome for attempt in fleet.attempts()}
    assert outcomes[lost] is Outcome.OK
    assert sorted(map(str, outcomes.values())) == ["cancelled", "ok", "ok"]
    assert fleet.types().count(("task.done", None)) == 2


async def test_a_host_that_does_not_answer_holds_up_nobody_else(home: Path):
    async with driven(home, 6, "ab") as fleet:
        await fleet.launched(a=1, b=1)
        fleet["b"].silent = True
        for count in range(2, 6):
            fleet.end_all("a")
            await fleet.launched(a=count)
        fleet["b"].silent = False
        await fleet.finish()


async def test_a_run_that_reaches_no_host_pauses_and_makes_no_attempt(home: Path):
    fleet = Fleet(home, 3, "abc")
    for one in fleet.hosts.values():
        one.unreachable = f"{one.name}: no route to host"
    with anyio.fail_after(30):
        await fleet.drive()
    paused = fleet.store.runs.get(fleet.run.id)
    assert paused.state is RunState.PAUSED
    assert paused.reason is not None
    assert "no route to host" in paused.reason["message"]
    assert "none of the other 2 hosts" in paused.reason["message"]
    assert fleet.store.attempts.all(fleet.run.id) == []
    fleet.store.close()


async def test_attempts_of_a_host_that_left_the_pool_are_lost(home: Path):
    fleet = Fleet(home, 1, "ab")
    del fleet.hosts["a"]
    async with anyio.create_task_group() as group:
        group.start_soon(fleet.drive)
        await fleet.launched(b=1)
        group.cancel_scope.cancel()
    fleet.store.runs.leave(fleet.run)
    fleet.run = take(fleet.store, fleet.store.runs.get(fleet.run.id))
    fleet.hosts = {"c": FakeBackend("c", slots=1)}
    async with anyio.create_task_group() as group:
        group.start_soon(fleet.drive)
        await fleet.launched(c=1)
        await fleet.finish()
    assert [(attempt.host, attempt.outcome) for attempt in fleet.attempts()] == [
        ("b", Outcome.LOST),
        ("c", Outcome.OK),
    ]
    fleet.store.close()


async def test_each_host_has_its_own_price(home: Path):
    fleet = Fleet(home, 2, "ab")
    fleet.hosts = {"a": FakeBackend("a", slots=1, price_usd_per_hour=3600.0), "b": FakeBackend("b", slots=1)}
    async with anyio.create_task_group() as group:
        group.start_soon(fleet.drive)
        await fleet.launched(a=1, b=1)
        await fleet.finish()
    assert {attempt.host: attempt.cost_usd for attempt in fleet.attempts()} == {"a": 1.0, "b": 0.0}
    fleet.store.close()


async def test_fixed_shards_lie_on_all_hosts(home: Path):
    async with driven(home, 6, workers=3, distribution=Distribution.ROUND_ROBIN) as fleet:
        await fleet.launched(a=1, b=1, c=1)
        await fleet.finish()
    where = {attempt.task_number: attempt.worker for attempt in fleet.attempts()}
    assert where == {1: "a-1", 2: "b-1", 3: "c-1", 4: "a-1", 5: "b-1", 6: "c-1"}


def test_workers_have_names_and_places():
    workers = WorkerTable(4, [("gpu-1", 3), ("gpu-2", 1)])
    assert workers.workers("gpu-1") == ("gpu-1-1", "gpu-1-2", "gpu-1-3")
    assert workers.workers("nobody") == ()
    assert workers.shards == ["gpu-1-1", "gpu-2-1", "gpu-1-2", "gpu-1-3"]
    assert host_of("gpu-1-3") == "gpu-1"
    assert workers.is_remote
    here = WorkerTable(2, [("local", None)])
    assert (list(here.shards), here.is_remote) == (["local-1", "local-2"], False)
