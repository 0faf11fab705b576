"""The engine with a fleet whose hosts come and go."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest
from msgspec.structs import replace
from tests.support.engine_play import PATIENT, QUICK, Play, end_all, host, played
from tests.support.fake_fleet import FakeFleet

from evalfleet.core.hosts.health import OtherWay
from evalfleet.engine.controller import take
from evalfleet.engine.supervisor import Supervisor
from evalfleet.hosts.base import AttemptEvent, HostInfo
from evalfleet.layout import Home
from evalfleet.model import Distribution, Kind, Outcome, Policy, Requests, RunState, TaskSpec
from evalfleet.store.open import open_reader, open_store
from evalfleet.testing.clock import FakeClock

pytestmark = pytest.mark.anyio


async def test_a_run_waits_for_its_first_host_and_says_so(home: Path):
    one = host("one")
    async with played(Play(home, 2, pool="cloud")) as play:
        await play.until(lambda: play.notices, "a word to the user")
        await play.until(lambda: play.fleet.wanted == [2], "the fleet to know how many are wanted")
        play.add(one)
        await play.launched(one)
        assert play.fleet.is_served
        await play.finish()
    assert play.notices == [f"run {play.run.id} waits for a worker: {play.fleet.waits_for()}"]
    assert not any(kind.startswith("breaker") for kind, _ in play.types())
    assert ("worker.joined", "one") in play.types()
    assert not play.fleet.is_served
    play.assert_all_ok()


async def test_a_host_that_comes_takes_its_share_at_once(home: Path):
    one, two = host("one"), host("two", slots=2)
    async with played(Play(home, 6, one)) as play:
        await play.launched(one)
        play.add(two)
        await play.launched(two, 2)
        assert len(one.launched) == 1
        await play.finish()
    assert {attempt.worker for attempt in play.attempts()} == {"one-1", "two-1", "two-2"}
    play.assert_all_ok()


@pytest.mark.parametrize(
    ("cause", "kind", "outcome"),
    [("preempted", Kind.PREEMPTED, Outcome.PREEMPTED), ("worker_lost", Kind.WORKER_LOST, Outcome.LOST)],
)
async def test_attempts_of_a_host_that_left_end_by_its_fate_and_run_elsewhere(
    home: Path, cause: str, kind: Kind, outcome: Outcome
):
    one, two = host("one"), host("two")
    async with played(Play(home, 2, one, two, attempts=1)) as play:
        await play.launched(one)
        await play.launched(two)
        two.unreachable = "no route to host"
        two.cut()
        play.fleet.remove("two", cause)  # pyright: ignore[reportArgumentType]
        await play.said("worker.left", two)
        end_all(one)
        await play.launched(one, 2)
        await play.finish()
    lost = next(attempt for attempt in play.attempts() if attempt.host == "two")
    assert lost.failure is not None
    assert (lost.outcome, lost.failure.kind, lost.failure.consumes) == (outcome, kind, False)
    play.assert_all_ok()


async def test_what_ended_on_a_host_is_brought_home_before_it_is_let_go(home: Path):
    one, two = host("one"), host("two")
    async with played(Play(home, 2, one, two)) as play:
        await play.launched(one)
        await play.launched(two)
        attempt = two.attempts[two.launched[0]]
        two.mute(two.launched[0])  # its end is not told to anybody who is connected now
        two.end(two.launched[0])
        assert not attempt.live
        play.fleet.remove("two", "preempted")
        await play.said("worker.left", two)
        assert two.forgotten == two.launched
        end_all(one)
    assert [attempt.outcome for attempt in play.attempts()] == [Outcome.OK, Outcome.OK]
    assert len(play.attempts()) == 2
    play.assert_all_ok()


async def test_a_host_that_leaves_and_does_not_answer_holds_nobody_up_for_long(home: Path):
    one, two = host("one"), host("two")
    async with played(Play(home, 2, one, two), replace(PATIENT, farewell_s=0.05)) as play:
        await play.launched(two)
        two.silent = True
        play.fleet.remove("two")
        await play.said("worker.left", two)
        await play.finish()
    assert sorted(str(attempt.outcome) for attempt in play.attempts()) == ["lost", "ok", "ok"]
    play.assert_all_ok()


async def test_a_host_whose_fate_is_not_known_keeps_its_attempts_until_it_is(home: Path):
    one, two = host("one"), host("two")
    async with played(Play(home, 2, one, two)) as play:
        await play.launched(one)
        await play.launched(two)
        two.unreachable = "it is being moved"
        two.cut()
        play.fleet.remove("two", None)
        await play.said("worker.left", two)
        end_all(one)
        await play.until(lambda: play.attempts()[0].outcome or play.attempts()[1].outcome, "the end of the other one")
        assert [attempt.outcome for attempt in play.attempts() if attempt.host == "two"] == [None]
        two.unreachable = None
        play.add(two)
        await play.finish()
    assert [attempt.outcome for attempt in play.attempts()] == [Outcome.OK, Outcome.OK]
    assert len(two.launched) == 1


async def test_another_way_to_the_same_host_finds_its_attempts_there(home: Path):
    one = host("one")
    async with played(Play(home, 1, one)) as play:
        await play.launched(one)
        moved = host("one")
        moved.attempts = one.attempts
        one.unreachable = "its address is another one now"
        one.cut()
        play.fleet.add(moved)
        await play.until(lambda: moved.acquired, "a connection by the other way")
        play.hosts = [moved]
        await play.finish()
    assert [attempt.outcome for attempt in play.attempts()] == [Outcome.OK]
    play.assert_all_ok()


async def test_a_resumed_run_finds_its_attempts_on_hosts_of_the_fleet_and_loses_those_of_others(home: Path):
    one, two = host("one"), host("two")
    play = Play(home, 2, one, two)
    async with anyio.create_task_group() as group:
        group.start_soon(play.drive)
        await play.launched(one)
        await play.launched(two)
        group.cancel_scope.cancel()
    play.store.runs.leave(play.run)
    play.run = take(play.store, play.store.runs.get(play.run.id))
    play.fleet = FakeFleet(one)
    play.fleet.decide("two", "preempted")
    async with played(play):
        await play.until(lambda: len(play.attempts()) == 3 or one.attempts, "an attempt to go on")
        await play.finish()
    assert sorted(str(attempt.outcome) for attempt in play.attempts()) == ["ok", "ok", "preempted"]
    assert one.launched[0] in {attempt.id for attempt in play.attempts() if attempt.outcome is Outcome.OK}
    play.assert_all_ok()


async def test_hosts_that_come_and_go_do_not_open_the_breaker(home: Path):
    """Each one leaves unreachable. Only a fleet whose hosts stay and cannot be reached for long is an outage."""
    async with played(Play(home, 1)) as play:
        for number in range(8):
            bad = host(f"bad{number}")
            bad.unreachable = "no route to host"
            play.add(bad)
            await play.said("worker.suspected", bad)
            play.fleet.remove(bad.name)
            await play.said("worker.left", bad)
        good = host("good")
        play.add(good)
        await play.launched(good)
        await play.finish()
    assert not any(kind.startswith("breaker") for kind, _ in play.types())
    play.assert_all_ok()


async def test_a_late_host_that_is_never_reached_pauses_the_run_in_the_end(home: Path):
    async with played(Play(home, 1), QUICK) as play:
        bad = host("bad")
        bad.unreachable = "no route to host"
        play.add(bad)
    paused = play.home
    reader = open_reader(paused)
    assert reader is not None
    run = reader.runs.get(play.run.id)
    reader.close()
    assert run.state is RunState.PAUSED
    assert run.reason is not None
    assert "no route to host" in run.reason["message"]


# Machines that say that they will be taken away


async def test_a_doomed_host_gets_no_new_work_and_keeps_what_it_has(home: Path):
    one, two = host("one"), host("two")
    async with played(Play(home, 6, one, two)) as play:
        await play.launched(one)
        await play.launched(two)
        two.preempt("Preempt in 30 s")
        await play.said("worker.draining", two)
        end_all(two)  # its attempt ends well all the same
        await play.until(lambda: not two.attempts, "its files")
        end_all(one)
        await play.launched(one, 2)
        assert len(two.launched) == 1
        await play.finish()
    assert len(two.launched) == 1
    assert all(attempt.outcome is Outcome.OK for attempt in play.attempts())
    play.assert_all_ok()


@pytest.mark.parametrize(("doomed", "way"), [(True, OtherWay.SILENT), (True, OtherWay.GONE), (False, OtherWay.EVICTED)])
@pytest.mark.parametrize("silent", [True, False])
async def test_what_the_cloud_takes_back_is_preempted(home: Path, doomed: bool, way: OtherWay, silent: bool):
    """Whether its connection breaks or just falls silent, and without the long silence that others are given up for."""
    one, two = host("one"), host("two")
    async with played(Play(home, 2, one, two, attempts=1)) as play:
        await play.launched(one)
        await play.launched(two)
        if doomed:
            two.preempt()
            await play.said("worker.draining", two)
        two.unreachable, two.other_way = "no route to host", way
        if silent:
            two.silent = True
        else:
            two.cut()
        await play.said("worker.lost", two)
        two.silent = False
        end_all(one)
        await play.launched(one, 2)
        assert "does not answer" in play.fleet.given_up["two"]  # so that its pool can replace it
        await play.finish()
    lost = next(attempt for attempt in play.attempts() if attempt.host == "two")
    assert lost.failure is not None
    assert (lost.outcome, lost.failure.consumes) == (Outcome.PREEMPTED, False)
    assert two.resets == 0
    play.assert_all_ok()


async def test_a_host_that_was_spared_works_again(home: Path):
    one = host("one")
    async with played(Play(home, 2, one)) as play:
        await play.launched(one)
        one.preempt()
        await play.said("worker.draining", one)
        one.preemption_line = None  # as after a start anew
        one.cut()
        await play.said("worker.returned", one)
        end_all(one)
        await play.launched(one, 2)
        await play.finish()
    play.assert_all_ok()


# What the fleet is told


async def test_the_fleet_knows_what_is_wanted_and_who_is_busy(home: Path):
    one, two = host("one"), host("two")
    async with played(Play(home, 3, one, two)) as play:
        await play.launched(one)
        await play.launched(two)
        await play.until(lambda: play.fleet.loads == {"one": 1, "two": 1}, "both to be busy")
        assert play.fleet.wanted == [3]
        end_all(two)
        await play.launched(two, 2)
        await play.until(lambda: play.fleet.wanted[-1] == 2, "less to be wanted")
        end_all(two)
        await play.until(lambda: play.fleet.loads["two"] == 0, "an idle host")
        await play.until(lambda: play.fleet.wanted[-1] == 1, "one to be wanted")
        await play.finish()
    assert play.fleet.wanted[-1] == 0
    assert play.fleet.loads == {"one": 0, "two": 0}


async def test_no_more_is_wanted_than_was_asked_for(home: Path):
    one = host("one")
    async with played(Play(home, 20, one, workers=4)) as play:
        await play.launched(one)
        await play.finish()
    assert max(play.fleet.wanted) == 4


async def test_a_host_is_busy_until_its_files_are_here(home: Path):
    one = host("one")
    async with played(Play(home, 2, one)) as play:
        await play.launched(one)
        one.collects = False
        end_all(one)
        await play.until(lambda: play.attempts()[0].outcome is Outcome.OK, "the verdict")
        await play.launched(one, 2)
        await play.until(lambda: play.fleet.loads["one"] == 2, "one that runs and one that is being collected")
        one.collects = True
        await play.finish()
    assert play.fleet.loads["one"] == 0


# Placement while hosts come and go


async def test_a_run_that_wants_more_workers_than_there_are_does_not_turn_in_circles(home: Path):
    one = host("one")
    async with played(Play(home, 5, one, workers=8)) as play:
        await play.launched(one)
        await play.until(lambda: play.attempts()[0].started_at, "its start to be stored")
        assert play.supervisor is not None
        dispatcher, steps = play.supervisor._dispatcher, 0
        step = dispatcher.step

        def counted(*args: object, **fields: object) -> object:
            nonlocal steps
            steps += 1
            return step(*args, **fields)  # pyright: ignore[reportArgumentType]

        dispatcher.step = counted  # pyright: ignore[reportAttributeAccessIssue]
        await anyio.sleep(0.5)
        assert steps < 20
        await play.finish()


async def test_a_task_that_becomes_due_while_the_queue_is_looked_at_is_not_overlooked(
    home: Path, monkeypatch: pytest.MonkeyPatch
):
    clock, backend = FakeClock(), host("one", slots=2)
    store = open_store(home, clock)
    specs = [TaskSpec(key=key, domain="t", command=("sleep",)) for key in ("a", "b")]
    policy = Policy(workers=2, attempts=3, retry_base_s=10.0)
    run = take(store, store.runs.submit("x", policy, specs, folder="/", base_env={}))
    supervisor = Supervisor(
        store=store, home=Home(home), fleet=FakeFleet(backend), run=run, settings=PATIENT, secrets=lambda _: {}
    )
    dispatcher = supervisor._dispatcher
    dispatcher.start()
    info = HostInfo(name="one", memory_mb=None, gpus=0, price_usd_per_hour=0.0)
    first = dispatcher.step([], [info]).launch["one"]
    failed = AttemptEvent(first[0].attempt_id, 2, 0.0, "ended", {"cause": "exited", "exit_code": 1})
    candidates = store.tasks.candidates

    def slowly(*args: object) -> object:
        found = candidates(*args)  # pyright: ignore[reportArgumentType]
        clock.advance(20.0)
        return found

    monkeypatch.setattr(store.tasks, "candidates", slowly)
    assert dispatcher.step([failed], [info]).wait_s == 0.0
    monkeypatch.undo()
    assert len(dispatcher.step([], [info]).launch["one"]) == 1
    store.close()


async def test_a_task_is_not_held_for_its_size_while_a_host_may_still_come_that_carries_it(home: Path):
    small, large = host("small", memory_mb=1000), host("large", memory_mb=8000)
    large.unreachable = "it is still starting"
    play = Play(home, 0, small, large)
    spec = TaskSpec(key="big", domain="t", command=("sleep",), requests=Requests(memory_mb=4000))
    other = TaskSpec(key="small", domain="t", command=("sleep",))
    play.run = take(play.store, play.store.runs.submit("y", Policy(workers=2), [spec, other], folder="/", base_env={}))
    async with played(play):
        await play.launched(small)
        large.unreachable = None
        await play.launched(large)
        await play.finish()
    play.assert_all_ok()


async def test_fixed_shards_of_a_host_that_left_are_served_by_others(home: Path):
    one, two = host("one"), host("two")
    async with played(Play(home, 6, one, two, workers=2, distribution=Distribution.ROUND_ROBIN)) as play:
        await play.launched(one)
        await play.launched(two)
        two.unreachable = "no route to host"
        two.cut()
        play.fleet.remove("two", "preempted")
        await play.said("worker.left", two)
        await play.finish()
    assert {a.task_number for a in play.attempts() if a.host == "one"} == {1, 2, 3, 4, 5, 6}
    play.assert_all_ok()


async def test_fixed_shards_of_a_lost_host_are_served_by_others(home: Path):
    one, two = host("one"), host("two")
    async with played(Play(home, 4, one, two, workers=2, distribution=Distribution.ROUND_ROBIN), QUICK) as play:
        await play.launched(one)
        await play.launched(two)
        two.unreachable = "no route to host"
        two.cut()
        await play.said("worker.lost", two)
        await play.finish()
    play.assert_all_ok()


async def test_fixed_shards_of_a_host_that_the_fleet_drains_are_served_by_others(home: Path):
    one, two = host("one"), host("two")
    async with played(Play(home, 4, one, two, workers=2, distribution=Distribution.ROUND_ROBIN)) as play:
        await play.launched(one)
        await play.launched(two)
        play.fleet.drained = {"two"}
        await play.finish()
    assert {a.task_number for a in play.attempts() if a.host == "two"} == {2}
    play.assert_all_ok()


async def test_a_newcomer_takes_the_fixed_shard_of_the_one_that_left(home: Path):
    one, two, three = host("one"), host("two"), host("three")
    async with played(Play(home, 40, one, two, workers=2, distribution=Distribution.ROUND_ROBIN)) as play:
        await play.launched(one)
        await play.launched(two)
        play.fleet.remove("two")
        await play.said("worker.left", two)
        play.add(three)
        await play.launched(three)
        await play.finish()
    assert {a.task_number % 2 for a in play.attempts() if a.host == "three"} == {0}
    play.assert_all_ok()


async def test_fixed_shards_of_unequal_length_are_all_worked_off(home: Path):
    """The second worker has nothing to do long before the first one is through."""
    one, two = host("one"), host("two")
    async with played(Play(home, 3, one, two, workers=2, distribution=Distribution.ROUND_ROBIN)) as play:
        await play.launched(one)
        await play.launched(two)
        end_all(two)
        await play.until(lambda: not two.attempts, "the end of the second shard")
        end_all(one)
        await play.launched(one, 2)
        await play.finish()
    assert {a.task_number: a.worker for a in play.attempts()} == {1: "one-1", 2: "two-1", 3: "one-1"}
