"""The engine against a backend that fails on command."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import anyio
import pytest
from msgspec.structs import replace
from tests.support.engine_play import opened, until
from tests.support.fake_backend import FakeBackend

from evalfleet.core.breaker import Limits
from evalfleet.core.hosts.health import OtherWay, Patience
from evalfleet.engine.controller import take
from evalfleet.engine.settings import EngineSettings
from evalfleet.engine.supervisor import Ending, Supervisor
from evalfleet.errors import Owned, RunOver
from evalfleet.hosts.base import FixedFleet, HostInfo, Inbox
from evalfleet.layout import Home
from evalfleet.model import Attempt, Outcome, Policy, Requests, Run, RunState, TaskSpec, TaskState, Verb
from evalfleet.store.attempts.records import Claim
from evalfleet.store.open import open_store
from evalfleet.store.store import Store

pytestmark = pytest.mark.anyio

QUICK = EngineSettings(
    lease_s=0.3,
    ping_s=0.02,
    audit_age_s=0.05,
    breaker=Limits(probe_base_s=0.02),
    patience=Patience(quiet_s=0.05, give_up_s=0.2, reconnects=2),
)
# For tests in which nobody may be given up, however slow the machine that they run on.
PATIENT = replace(QUICK, lease_s=60.0, patience=Patience(quiet_s=0.05, give_up_s=60.0, reconnects=2))


class Driven:
    """A run that a supervisor drives in the background."""

    until = staticmethod(until)

    def __init__(
        self, home: Path, store: Store, run: Run, backend: FakeBackend, settings: EngineSettings = PATIENT
    ) -> None:
        self.settings = settings
        self.store = store
        self.home = home
        self.run = run
        self.backend = backend
        self.ending: Ending | None = None

    async def launched(self, count: int) -> None:
        await self.until(lambda: len(self.backend.launched) >= count, f"{count} launches")

    def types(self) -> list[str]:
        with opened(self.home) as reader:
            return [event.type for event in reader.events.of_run(self.run.id, limit=10_000)]

    def attempts(self) -> list[Attempt]:
        with opened(self.home) as reader:
            return reader.attempts.all(self.run.id)

    def supervisor(self) -> Supervisor:
        return Supervisor(
            store=self.store,
            home=Home(self.home),
            fleet=FixedFleet([self.backend]),
            run=self.run,
            settings=self.settings,
            secrets=lambda _: {},
        )


def submitted(home: Path, *programs: str, **policy: object) -> tuple[Store, Run]:
    store = open_store(home)
    tasks = [
        TaskSpec(key=f"t_{number}", domain="t", command=(program,)) for number, program in enumerate(programs, start=1)
    ]
    run = store.runs.submit("x", Policy(workers=4, retry_base_s=0.01, **policy), tasks, folder="/", base_env={})  # pyright: ignore[reportArgumentType]
    return store, take(store, run)


@asynccontextmanager
async def driven(
    home: Path, *programs: str, settings: EngineSettings = PATIENT, **policy: object
) -> AsyncIterator[Driven]:
    store, run = submitted(home, *programs, **policy)
    one = Driven(home, store, run, FakeBackend(), settings)

    async def drive() -> None:
        one.ending = await one.supervisor().drive()

    async with anyio.create_task_group() as group:
        group.start_soon(drive)
        yield one
        await one.until(lambda: one.ending is not None, "the end")
    store.close()


async def test_a_run_completes(home: Path):
    async with driven(home, "true", "false", "true", attempts=2) as one:
        pass
    with opened(home) as reader:
        assert reader.runs.get(one.run.id).state is RunState.COMPLETED
        states = [task.state for task in reader.tasks.all(one.run.id)]
    assert states == [TaskState.DONE, TaskState.FAILED, TaskState.DONE]
    assert sorted(one.backend.forgotten) == sorted(one.backend.launched)
    assert one.backend.attempts == {}


async def test_a_cut_connection_costs_nothing(home: Path):
    async with driven(home, "sleep", "sleep") as one:
        await one.launched(2)
        for _ in range(3):
            one.backend.cut()
            await one.until(lambda: one.backend.acquired > 1, "a new connection")
        for attempt in list(one.backend.attempts):
            one.backend.end(attempt)
    assert len(one.backend.launched) == 2


async def test_a_dead_runner_is_not_the_tasks_fault(home: Path):
    async with driven(home, "sleep", attempts=1) as one:
        await one.launched(1)
        one.backend.lose_runner()
        await one.launched(2)
        one.backend.end(one.backend.launched[1])
    first, second = one.attempts()
    assert (first.outcome, second.outcome) == (Outcome.LOST, Outcome.OK)
    assert first.failure is not None
    assert not first.failure.consumes


async def test_a_task_that_kills_its_host_does_not_do_so_for_ever(home: Path):
    async with driven(home, "sleep", max_lost=3) as one:
        for count in (1, 2, 3):
            await one.launched(count)
            one.backend.lose_runner()
        await one.until(lambda: one.ending is not None, "the end")
    assert len(one.backend.launched) == 3


async def test_a_silent_host_is_suspected_gets_no_work_and_may_return(home: Path):
    async with driven(home, "sleep", "sleep") as one:
        await one.launched(2)
        one.backend.other_way = OtherWay.SILENT
        one.backend.silent = True
        await one.until(lambda: "worker.suspected" in one.types(), "suspicion")
        one.backend.silent = False
        await one.until(lambda: "worker.returned" in one.types(), "its return")
        for attempt in list(one.backend.attempts):
            one.backend.end(attempt)
    assert one.backend.resets == 0
    assert len(one.backend.launched) == 2


async def test_a_host_that_nobody_can_reach_is_given_up_only_after_all_that(home: Path):
    # Short, and yet longer than a busy machine holds us up: a second reset would be a false death.
    firm = replace(QUICK, ping_s=0.2, lease_s=1.0, patience=Patience(quiet_s=0.5, give_up_s=1.5, reconnects=2))
    async with driven(home, "sleep", settings=firm) as one:
        await one.launched(1)
        one.backend.other_way = OtherWay.SILENT
        one.backend.silent = True
        await one.launched(2)
        one.backend.end(one.backend.launched[1])
    kinds = one.types()
    assert kinds.index("worker.suspected") < kinds.index("worker.lost")
    assert one.backend.resets == 1


async def test_a_silent_connection_of_a_living_host_is_replaced(home: Path):
    async with driven(home, "sleep") as one:
        await one.launched(1)
        one.backend.silent = True
        await one.until(lambda: "worker.suspected" in one.types(), "suspicion")
        one.backend.silent = False
        one.backend.end(one.backend.launched[0])
    assert one.backend.resets == 0
    assert len(one.backend.launched) == 1


async def test_an_unreachable_backend_pauses_the_run_without_an_attempt(home: Path):
    store, run = submitted(home, "true", "true")
    one = Driven(home, store, run, FakeBackend())
    one.backend.unreachable = "no python here"
    assert await one.supervisor().drive() is Ending.SETTLED
    paused = store.runs.get(run.id)
    assert paused.state is RunState.PAUSED
    assert paused.reason is not None
    assert "no python here" in paused.reason["message"]
    assert store.attempts.all(run.id) == []
    store.close()


async def test_a_claimed_attempt_that_was_never_launched_is_launched_by_the_next_controller(home: Path):
    store, run = submitted(home, "true")
    one = Driven(home, store, run, FakeBackend())
    supervisor = one.supervisor()
    dispatcher = supervisor._dispatcher
    dispatcher.start()
    async with one.backend.acquire(run.id, run.epoch, supervisor._inbox) as host:
        orders = dispatcher.step([], [host.info])
    assert [launch.attempt_id for launch in orders.launch["fake"]] == [f"{run.id}.1.1"]
    store.runs.leave(run)
    one.run = take(store, store.runs.get(run.id))
    await one.supervisor().drive()
    assert one.backend.launched == [f"{run.id}.1.1"]
    assert [attempt.outcome for attempt in store.attempts.all(run.id)] == [Outcome.OK]
    store.close()


async def test_an_attempt_that_its_host_forgot_is_lost_and_retried(home: Path):
    async with driven(home, "sleep") as one:
        await one.launched(1)
        await one.until(lambda: one.attempts()[0].started_at, "its start to be stored")
        one.backend.attempts.clear()
        one.backend.cut()
        await one.launched(2)
        one.backend.end(one.backend.launched[1])
    assert len(one.backend.launched) == 2


async def test_a_controller_that_was_replaced_stops(home: Path):
    store, run = submitted(home, "sleep")
    one = Driven(home, store, run, FakeBackend(), replace(PATIENT, lease_s=3.0))  # it looks three times in a lease

    async def be_replaced() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(one.supervisor().drive)
            await one.launched(1)
            with closing(open_store(home)) as another:  # the run's own store is in use
                another.runs.take(run.id, "somebody else")

    with pytest.raises(BaseExceptionGroup) as caught:
        await be_replaced()
    assert caught.group_contains(Owned)
    store.close()


async def test_a_request_that_comes_when_the_run_is_over_is_left_to_whoever_asked(home: Path):
    store, run = submitted(home, "false", attempts=1)
    one = Driven(home, store, run, FakeBackend())
    supervisor = one.supervisor()
    await supervisor.drive()
    number = store.requests.add(run.id, Verb.RETRY, {"only": []}, "somebody")
    assert not supervisor._dispatcher.obey(store.requests.pending(run.id)[0])
    assert store.requests.answer(number) is None
    assert [task.state for task in store.tasks.all(run.id)] == [TaskState.FAILED]
    store.close()


async def test_a_host_that_breaks_at_every_launch_opens_the_breaker(home: Path):
    store, run = submitted(home, "true")
    one = Driven(home, store, run, FakeBackend())
    one.backend.breaks_on_launch = True
    with anyio.fail_after(20):
        assert await one.supervisor().drive() is Ending.SETTLED
    assert store.runs.get(run.id).state is RunState.PAUSED
    store.close()


async def test_a_late_verdict_counts_and_ends_the_attempt_that_replaced_it(home: Path):
    async with driven(home, "sleep", attempts=1) as one:
        await one.launched(1)
        first = one.backend.launched[0]
        await one.until(lambda: one.attempts()[0].started_at, "its start to be stored")
        hidden = one.backend.attempts.pop(first)  # its host does not know it for a while
        one.backend.cut()
        await one.launched(2)
        one.backend.attempts[first] = hidden
        one.backend.end(first)
        one.backend.cut()
    late, replacement = one.attempts()
    assert (late.outcome, replacement.outcome) == (Outcome.OK, Outcome.CANCELLED)
    with opened(home) as reader:
        assert [event.type for event in reader.events.of_run(one.run.id)].count("task.done") == 1


async def test_the_audit_finds_what_the_host_lost(home: Path):
    async with driven(home, "sleep") as one:
        await one.launched(1)
        await one.until(lambda: one.attempts()[0].started_at, "its start to be stored")
        one.backend.attempts.clear()
        await one.launched(2)
        one.backend.end(one.backend.launched[1])
    assert [attempt.outcome for attempt in one.attempts()] == [Outcome.LOST, Outcome.OK]


async def test_files_that_were_not_collected_when_the_run_completed_are_brought_by_the_next_controller(home: Path):
    store, run = submitted(home, "true")
    one = Driven(home, store, run, FakeBackend())
    dispatcher = one.supervisor()._dispatcher
    dispatcher.start()
    inbox = Inbox()
    async with one.backend.acquire(run.id, run.epoch, inbox) as host:
        await host.launch(dispatcher.step([], [host.info]).launch["fake"])
        assert dispatcher.step(inbox.take(), [host.info]).collect
        assert dispatcher.step([], [host.info]).done
    store.runs.leave(run)
    assert store.runs.get(run.id).state is RunState.COMPLETED
    one.run = take(store, store.runs.get(run.id))
    assert await one.supervisor().drive() is Ending.SETTLED
    store.runs.leave(one.run)
    assert store.attempts.unended(run.id) == []
    assert one.backend.attempts == {}
    with pytest.raises(RunOver):
        take(store, store.runs.get(run.id))
    store.close()


async def test_a_host_that_refuses_to_forget_does_not_hold_up_the_run(home: Path):
    store, run = submitted(home, "true", "true")
    one = Driven(home, store, run, FakeBackend())
    one.backend.forgets = False
    with anyio.fail_after(20):
        await one.supervisor().drive()
    assert store.runs.get(run.id).state is RunState.COMPLETED
    store.close()


async def test_a_claim_that_slips_in_while_the_connection_breaks_is_launched(home: Path):
    async with driven(home, "sleep") as one:
        await one.until(lambda: one.backend.acquired == 1, "a connection")
        await one.launched(1)
        first = one.backend.launched[0]
        del one.backend.attempts[first]  # as if the launch had never arrived
        one.backend.launched.clear()
        one.backend.cut()
        await one.until(lambda: one.attempts()[-1].number == 2 or one.backend.launched, "another try")
        await one.until(lambda: one.backend.launched, "its launch")
        one.backend.end(one.backend.launched[-1])


async def test_tasks_that_do_not_fit_do_not_block_those_behind_them(home: Path):
    store = open_store(home)
    large = [
        TaskSpec(key=f"l_{n}", domain="l", command=("sleep",), requests=Requests(memory_mb=600)) for n in range(60)
    ]
    small = [TaskSpec(key=f"s_{n}", domain="s", command=("sleep",)) for n in range(3)]
    policy = Policy(workers=4, breaker=False)
    run = take(store, store.runs.submit("x", policy, [*large, *small], folder="/", base_env={}))
    dispatcher = Driven(home, store, run, FakeBackend(memory_mb=1000)).supervisor()._dispatcher
    dispatcher.start()
    host = HostInfo(name="fake", memory_mb=1000, gpus=0, price_usd_per_hour=0.0)
    keys = {launch.spec["key"] for launch in dispatcher.step([], [host]).launch["fake"]}
    assert keys == {"l_0", "s_0", "s_1", "s_2"}
    store.close()


async def test_what_an_abandoned_run_still_runs_keeps_its_memory(home: Path):
    store, run = submitted(home, "sleep")
    spec = TaskSpec(key="a", domain="a", command=("sleep",), requests=Requests(memory_mb=600))
    busy = take(store, store.runs.submit("busy", Policy(workers=1), [spec], folder="/", base_env={}))
    claim = Claim(task_number=1, worker="w", host="fake", token="t", lease_s=-1.0, requests=spec.requests)
    assert store.attempts.claim(busy, claim)
    other = take(store, store.runs.submit("other", Policy(workers=1), [spec], folder="/", base_env={}))
    wish = replace(claim, lease_s=60.0, host_memory_mb=1000)
    assert store.attempts.claim(other, replace(wish, others=frozenset({f"{busy.id}.1.1"}))) is None
    assert store.attempts.claim(other, wish)
    assert run.id != other.id
    store.close()
