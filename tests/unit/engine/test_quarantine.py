"""Hosts that are blamed, and hosts that are new: both prove themselves with a canary before they get work."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest
from msgspec.structs import replace
from tests.support.engine_play import PATIENT, Play, end_all, host, played
from tests.support.fake_backend import FakeBackend
from tests.support.fake_fleet import FakeFleet

from evalfleet.core.hosts.quarantine import Terms
from evalfleet.engine.controller import take
from evalfleet.engine.dispatcher import Dispatcher
from evalfleet.engine.supervisor import Supervisor
from evalfleet.hosts.base import AttemptEvent, CanarySpec, HostInfo
from evalfleet.layout import Home
from evalfleet.model import Event, Outcome, Policy, RunState, TaskSpec
from evalfleet.store.open import open_reader, open_store
from evalfleet.testing.clock import FakeClock

pytestmark = pytest.mark.anyio

SOON = replace(PATIENT, quarantine=Terms(pause_s=0.05, canaries=3))


def events(play: Play, kind: str) -> list[Event]:
    return [event for event in play.events() if event.type == kind]


def fail_all(backend: FakeBackend) -> None:
    """By no fault of the tasks."""
    for attempt_id, attempt in list(backend.attempts.items()):
        if attempt.live:
            backend.end(attempt_id, cause="start_timeout", exit_code=None, duration_s=60.0)


def claims_between(play: Play, first: str, last: str, worker: str) -> int:
    kinds = [event.type for event in play.events()]
    between = play.events()[kinds.index(first) : kinds.index(last)]
    return sum(event.type == "attempt.claimed" and event.data["worker"] == worker for event in between)


async def blamed(play: Play, bad: FakeBackend, good: FakeBackend) -> None:
    """Let everything fail on one host and succeed on the other until somebody notices."""

    def is_noticed() -> bool:
        fail_all(bad)
        end_all(good)
        return ("worker.quarantined", bad.name) in play.types()

    await play.until(is_noticed, "quarantine")


async def test_a_blamed_host_gets_no_work_until_its_canary_has_passed(home: Path):
    bad, good = host("bad"), host("good")
    bad.is_sound = False
    async with played(Play(home, 40, bad, good, attempts=9), SOON) as play:
        await blamed(play, bad, good)
        fail_all(bad)
        await play.until(lambda: bad.canaries, "a canary")
        before = len(bad.launched)
        bad.is_sound = True  # somebody repaired it
        await play.said("worker.returned", bad)
        await play.launched(bad, before + 1)
        await play.finish()
    assert claims_between(play, "worker.quarantined", "worker.returned", "bad-1") == 0
    assert bad.canaries[-1] in bad.forgotten
    assert not {attempt.id for attempt in play.attempts()} & set(bad.canaries)
    assert list(play.fleet.blamed) == ["bad"]
    assert "different tasks failed there through no fault of their own" in play.fleet.blamed["bad"]
    assert any("bad is quarantined" in line for line in play.notices)
    kinds = [kind for kind, where in play.types() if where == "bad"]
    assert kinds.index("worker.quarantined") < kinds.index("worker.canary_passed") < kinds.index("worker.returned")
    play_states = {attempt.outcome for attempt in play.attempts()}
    assert play_states <= {Outcome.OK, Outcome.INFRA_ERROR}


async def test_what_runs_on_a_blamed_host_goes_on(home: Path):
    bad, good = host("bad", slots=2), host("good")
    async with played(Play(home, 30, bad, good, attempts=9), SOON) as play:
        await play.launched(bad, 2)
        kept = bad.launched[0]

        def is_noticed() -> bool:
            for attempt_id, attempt in list(bad.attempts.items()):
                if attempt.live and attempt_id != kept:
                    bad.end(attempt_id, cause="start_timeout", exit_code=None, duration_s=60.0)
            end_all(good)
            return ("worker.quarantined", "bad") in play.types()

        await play.until(is_noticed, "quarantine")
        bad.end(kept)
        await play.finish()
    assert next(attempt for attempt in play.attempts() if attempt.id == kept).outcome is Outcome.OK


async def test_after_three_canaries_the_run_goes_on_without_the_host(home: Path):
    bad, good = host("bad"), host("good")
    bad.is_sound = False
    async with played(Play(home, 40, bad, good, attempts=9), SOON) as play:
        await blamed(play, bad, good)
        fail_all(bad)
        await play.until(lambda: len(events(play, "worker.canary_failed")) == 3, "three canaries")
        await play.finish()
    failed = events(play, "worker.canary_failed")
    assert [event.data["failed"] for event in failed] == [1, 2, 3]
    assert failed[-1].data["next_at"] is None
    assert len(bad.canaries) == 3
    assert claims_between(play, "worker.quarantined", "run.completed", "bad-1") == 0
    assert set(bad.canaries) <= set(bad.forgotten)


async def test_a_new_host_proves_itself_before_its_first_work(home: Path):
    new = host("new", canary=CanarySpec())
    new.is_sound = False
    async with played(Play(home, 2, new), SOON) as play:
        await play.until(lambda: events(play, "worker.canary_failed"), "a failed canary")
        assert new.launched == []
        await play.until(lambda: play.fleet.blamed, "the fleet to be told")
        assert play.fleet.blamed["new"].startswith("its canary failed: bad_exit")
        new.is_sound = True
        await play.launched(new)
        await play.finish()
    assert [kind for kind, _ in play.types()].count("worker.canary_passed") == 1
    play.assert_all_ok()


async def test_a_new_host_that_comes_later_proves_itself_too(home: Path):
    old, late = host("old"), host("late", canary=CanarySpec())
    async with played(Play(home, 4, old), SOON) as play:
        await play.launched(old)
        play.add(late)
        await play.launched(late)
        assert len(late.canaries) == 1
        await play.finish()
    assert old.canaries == []
    assert [kind for kind, where in play.types() if where == "late"] == ["worker.joined", "worker.canary_passed"]
    assert late.attempts == {}
    play.assert_all_ok()


async def test_a_run_whose_hosts_are_all_barred_pauses_and_says_why(home: Path):
    one, two = host("one", canary=CanarySpec()), host("two", canary=CanarySpec())
    one.is_sound = two.is_sound = False
    async with played(Play(home, 3, one, two), SOON) as play:
        pass
    reader = open_reader(home)
    assert reader is not None
    run = reader.runs.get(play.run.id)
    reader.close()
    assert run.state is RunState.PAUSED
    assert run.reason is not None
    assert run.reason["cause"] == "quarantine"
    for words in ("one: its canary failed: bad_exit", "two: its canary failed", f"evalfleet resume {play.run.id}"):
        assert words in run.reason["message"]
    assert play.attempts() == []
    assert one.attempts == two.attempts == {}
    assert "its canary failed: bad_exit" in play.fleet.given_up["one"]  # so that its pool can replace it


async def test_resume_tries_barred_hosts_again_at_once(home: Path):
    one = host("one", canary=CanarySpec())
    one.is_sound = False
    play = Play(home, 1, one)
    play.settings = SOON
    await play.drive()
    one.is_sound = True
    play.store.runs.leave(play.run)
    play.run, play.ending = take(play.store, play.store.runs.get(play.run.id)), None
    async with played(play, replace(PATIENT, quarantine=Terms(pause_s=600.0))):
        await play.finish()
    play.assert_all_ok()


async def test_a_run_that_ends_leaves_no_canary_behind(home: Path):
    one, slow = host("one"), host("slow", canary=CanarySpec(command=("sleep",)))
    async with played(Play(home, 2, one, slow), SOON) as play:
        await play.launched(one)
        await play.until(lambda: slow.canaries, "a canary that runs")
        await play.until(lambda: play.fleet.loads.get("slow") == 1, "a host that is busy with it")
        end_all(one)
        await play.launched(one, 2)
        end_all(one)
    assert slow.attempts == {}
    assert slow.launched == []
    play.assert_all_ok()


async def test_a_canary_of_a_killed_controller_is_cleaned_up_by_the_next_one(home: Path):
    one = host("one", canary=CanarySpec(command=("sleep",)))
    play = Play(home, 1, one)
    async with anyio.create_task_group() as group:
        group.start_soon(play.drive)
        await play.until(lambda: one.canaries, "a canary that runs")
        group.cancel_scope.cancel()
    play.store.runs.leave(play.run)
    play.run = take(play.store, play.store.runs.get(play.run.id))
    one.canary = None
    async with played(play):
        await play.launched(one)
        one.end(one.canaries[0])
        await play.until(lambda: one.canaries[0] in one.forgotten, "the old canary to be forgotten")
        await play.finish()
    assert one.attempts == {}


async def test_a_canary_whose_connection_breaks_is_asked_again_and_not_counted(home: Path):
    one = host("one", canary=CanarySpec(command=("sleep",)))
    async with played(Play(home, 1, one), SOON) as play:
        await play.until(lambda: one.canaries, "a canary")
        one.unreachable = "no route to host"
        one.cut()
        await play.said("worker.suspected", one)
        one.unreachable = None
        await play.until(lambda: len(one.canaries) == 2, "another canary")
        one.end(one.canaries[1])
        await play.launched(one)
        one.end(one.canaries[0])
        await play.finish()
    assert "worker.canary_failed" not in [kind for kind, _ in play.types()]
    assert one.attempts == {}


def made(home: Path, clock: FakeClock, **policy: object) -> Dispatcher:
    store = open_store(home, clock)
    specs = [TaskSpec(key="t_1", domain="t", command=("true",))]
    wanted = Policy(**{"workers": 2, **policy})  # pyright: ignore[reportArgumentType]
    run = take(store, store.runs.submit("x", wanted, specs, folder="/", base_env={"A": "1"}))
    fleet = FakeFleet(host("one", canary=CanarySpec(timeout_s=10.0)))
    settings = replace(PATIENT, lease_s=60.0, quarantine=Terms())
    supervisor = Supervisor(store=store, home=Home(home), fleet=fleet, run=run, settings=settings, secrets=lambda _: {})
    supervisor._dispatcher.start()
    return supervisor._dispatcher


ONE = HostInfo(name="one", memory_mb=None, gpus=0, price_usd_per_hour=0.0)


async def test_a_canary_has_its_times(home: Path):
    clock = FakeClock()
    dispatcher = made(home, clock)
    assert dispatcher.step([], []).launch == {}, "nobody is reached"
    launch = dispatcher.step([], [ONE]).launch["one"][0]
    assert launch.spec["command"] == ["/bin/sh", "-c", "exit 0"]
    assert launch.spec["timeout_s"] == 10.0
    clock.advance(69.0)
    assert dispatcher.step([], [ONE]).stop == {}
    clock.advance(1.0)
    assert dispatcher.step([], [ONE]).stop == {"one": [launch.attempt_id]}, "it did not end: it is stopped, and failed"
    clock.advance(59.0)
    waiting = dispatcher.step([], [ONE])
    assert (waiting.launch, waiting.wait_s) == ({}, pytest.approx(1.0))
    clock.advance(1.0)
    second = dispatcher.step([], [ONE]).launch["one"][0]
    assert second.attempt_id != launch.attempt_id
    ended = AttemptEvent(second.attempt_id, 2, 0.0, "ended", {"cause": "exited", "exit_code": 1})
    assert dispatcher.step([ended], [ONE]).forget == [second.attempt_id]
    clock.advance(119.0)
    assert dispatcher.step([], [ONE]).launch == {}
    clock.advance(1.0)
    third = dispatcher.step([], [ONE]).launch["one"][0]
    passed = AttemptEvent(third.attempt_id, 2, 0.0, "ended", {"cause": "exited", "exit_code": 0})
    assert [one.spec["key"] for one in dispatcher.step([passed], [ONE]).launch["one"]] == ["t_1"]


async def test_a_run_may_name_its_own_canary_and_its_files_go_with_it(home: Path):
    dispatcher = made(home, FakeClock(), canary=("python3", "check.py"), files=("check.py",))
    launch = dispatcher.step([], [ONE]).launch["one"][0]
    assert launch.spec["command"] == ["python3", "check.py"]
    assert launch.files == {"check.py": Path("/check.py")}
    assert launch.inherited == {"A"}
